"""The dashboard under measurement, served by a process of its own, and the visitors that keep its pages open.

Run as a module with a database's address, it serves, prints where, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast_bench.machine import cpu_seconds
from holdfast_bench.subject import PATIENCE_S, clean_environment
from holdfast_bench.workload import make_app

LIVE = {"holdfast-part": "live"}
SLOWEST_S = 30
SHORTEST_PAUSE_S = 1.0
"""As the page's own script pauses between two refreshes."""


class PageResponse(NamedTuple):
    """What a request came to, and how long it took."""

    status: int
    body: bytes
    seconds: float


class ServedDashboard:
    """One served dashboard. Leaving the block ends it."""

    def __init__(self, url: str) -> None:
        """Start it and wait for its address."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast_bench.dashboard_process", url],
            env=clean_environment(),
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

    def __enter__(self) -> ServedDashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that is kept, as a browser keeps it."""
        return http.client.HTTPConnection(self.host, self.port, timeout=SLOWEST_S)

    def cpu_seconds(self) -> float:
        """Return how much processor time the process has used."""
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


def visit(browser: http.client.HTTPConnection, path: str, live: bool = False) -> PageResponse:
    """Ask for a page, or for its live part as an open page does, and read the answer to its end."""
    begun = time.perf_counter()
    browser.request("GET", path, headers=LIVE if live else {})
    response = browser.getresponse()
    body = response.read()
    return PageResponse(response.status, body, time.perf_counter() - begun)


class OpenPage:
    """One open page: it listens to the stream and fetches its live part when the server hints at a change."""

    def __init__(self, dashboard: ServedDashboard, path: str) -> None:
        """Take the dashboard and the page."""
        self._dashboard = dashboard
        self._path = path
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.refreshes = 0

    def __enter__(self) -> OpenPage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join(SLOWEST_S)

    def _watch(self) -> None:
        stream = self._dashboard.connect()
        stream.request("GET", "/api/v1/live")
        answer = stream.getresponse()
        last = 0.0
        while not self._leaving.is_set():
            if not (line := answer.readline()):
                break
            if not line.startswith(b"event: hint"):
                continue
            if self._leaving.wait(max(0.0, last + SHORTEST_PAUSE_S - time.monotonic())):
                break
            # Servers close idle connections, and browsers open them again.
            with closing(self._dashboard.connect()) as browser:
                visit(browser, self._path, live=True)
            last = time.monotonic()
            self.refreshes += 1
        stream.close()


async def _serve(url: str) -> None:
    from holdfast.cli.serving_process import tune_interpreter
    from holdfast.settings import read_settings
    from holdfast.web.app import create
    from holdfast.web.http_server import Server

    app = make_app(url)
    server = Server(create(app, settings=read_settings({})), "127.0.0.1", 0)

    def stop() -> None:
        # Unbuffered, because a thread that waits in a buffer's lock breaks the interpreter's end.
        os.read(sys.stdin.fileno(), 64)
        server.should_exit = True

    threading.Thread(target=stop, daemon=True).start()
    serving = asyncio.create_task(server.serve())
    address = await server.address()
    # As `holdfast api serve` does.
    tune_interpreter(app.database.store.dialect)
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    await serving
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
