"""The dashboard under measurement, in a process of its own; it says where it listens and ends with its input."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.admin.app import create
from holdfast.admin.server import make_server
from holdfast.cli.interpreter import make_ours
from holdfast.settings import read_settings
from tests.bench.command import PATIENCE_S, ROOT
from tests.bench.handlers import make_app
from tests.bench.machine import cpu_seconds

LIVE = {"holdfast-part": "live"}
SLOWEST_S = 30


class Answer(NamedTuple):
    """What a request came to, and how long it took."""

    status: int
    body: bytes
    seconds: float


class Dashboard:
    """One served dashboard. Leaving the block ends it."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.pages_server", url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        address = urlsplit(self._process.stdout.readline().strip())
        if address.hostname is None:
            self.end()
            raise RuntimeError("the dashboard did not start")
        self.host, self.port = address.hostname, address.port

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def visitor(self) -> http.client.HTTPConnection:
        """Return a connection that is kept, as a browser keeps it."""
        return http.client.HTTPConnection(self.host, self.port, timeout=SLOWEST_S)

    def cpu_seconds(self) -> float:
        """Return how long the process has used a processor."""
        return cpu_seconds(self._process.pid)

    def end(self) -> None:
        """End the process, by force if need be."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def visit(visitor: http.client.HTTPConnection, path: str, live: bool = False) -> Answer:
    """Ask for a page, or for its live part as an open page does, and read the answer to its end."""
    begun = time.perf_counter()
    visitor.request("GET", path, headers=LIVE if live else {})
    response = visitor.getresponse()
    body = response.read()
    return Answer(response.status, body, time.perf_counter() - begun)


async def _serve(url: str) -> None:
    app = make_app(url)
    server = make_server(create(app, settings=read_settings({})), "127.0.0.1", 0)

    def stop() -> None:
        # Unbuffered, because a thread that waits in a buffer's lock breaks the interpreter's end.
        os.read(sys.stdin.fileno(), 64)
        server.should_exit = True

    threading.Thread(target=stop, daemon=True).start()
    serving = asyncio.create_task(server.serve())
    address = await server.address()
    # As `holdfast api serve` does.
    make_ours()
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    await serving
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
