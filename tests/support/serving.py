"""An ASGI application as its users meet it: served by uvicorn on a free port of this machine."""

import functools
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from tests.support.until import PATIENCE_S


class _Server(uvicorn.Server):
    """A server that says when it is ready, or that it never will be."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@functools.cache
def authorities() -> ssl.SSLContext:
    """Return what clients check servers by, read once: reading it takes longer than most of what they ask."""
    return httpx.create_ssl_context()


def answers(client: httpx.Client, path: str = "") -> bool:
    """Whether a server answers yet, and well."""
    try:
        answer = client.get(path)
    except httpx.TransportError:
        return False
    assert not answer.is_server_error, answer.text
    return True


@contextmanager
def serve(application: Any, listening: socket.socket | None = None) -> Iterator[str]:
    """Serve an application, at a bound socket's address if there is one; yield where to look."""
    config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=1)
    server = _Server(config)
    # The server closes what it listens to; the caller's socket is for the next one too.
    with listening.dup() if listening else socket.socket() as own:
        if listening is None:
            own.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: server.run(sockets=[own]), daemon=True)
        thread.start()
        try:
            assert server.ready.wait(PATIENCE_S), "the server did not start"
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
