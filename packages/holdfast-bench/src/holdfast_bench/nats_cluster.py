"""Three NATS servers with a stream of three replicas, for the figures of relays and inboxes."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats


async def empty_stream(servers: str) -> None:
    """Make the stream anew."""
    client = await nats.connect(servers.split(","))
    wanted = {"name": "BENCH", "subjects": ["BENCH.>"], "num_replicas": 3, "allow_atomic": True}
    try:
        await client.request("$JS.API.STREAM.DELETE.BENCH", b"", timeout=10)
        for _ in range(50):
            body = json.dumps({**wanted, "storage": "file", "retention": "limits"}).encode()
            made = await client.request("$JS.API.STREAM.CREATE.BENCH", body, timeout=10)
            if "error" not in json.loads(made.data):
                return
            await asyncio.sleep(0.2)
        raise RuntimeError(f"the stream could not be made: {made.data.decode()[:200]}")
    finally:
        await client.close()


def find_server() -> str | None:
    """Return the program of NATS, of this environment or of the system."""
    here = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    return here or shutil.which("nats-server")


@contextmanager
def run_cluster(program: str) -> Iterator[str]:
    """Three NATS servers on free ports; gives their addresses."""
    ports = [_free_port() for _ in range(6)]
    routes = ",".join(f"nats://127.0.0.1:{each}" for each in ports[3:])
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-nats-") as home:
        try:
            for number in range(3):
                words = [
                    *(program, "--addr", "127.0.0.1", "--port", str(ports[number]), "-js"),
                    *("-sd", f"{home}/{number}", "--name", f"n{number}", "--cluster_name", "bench"),
                    *("--cluster", f"nats://127.0.0.1:{ports[3 + number]}", "--routes", routes),
                ]
                running.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
            addresses = ",".join(f"nats://127.0.0.1:{each}" for each in ports[:3])
            asyncio.run(_wait_for_leader(addresses))
            yield addresses
        finally:
            for each in running:
                each.kill()
                each.wait()


async def _wait_for_leader(servers: str) -> None:
    for _ in range(300):
        try:
            client = await nats.connect(
                servers.split(","), allow_reconnect=False, error_cb=_ignore, connect_timeout=1
            )
            answer = await client.request("$JS.API.INFO", b"", timeout=1)
            await client.close()
            if "error" not in json.loads(answer.data):
                return
        except Exception:
            pass
        await asyncio.sleep(0.1)
    raise RuntimeError("the NATS servers did not find a leader")


async def _ignore(error: Exception) -> None:
    """The servers are not there yet."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
