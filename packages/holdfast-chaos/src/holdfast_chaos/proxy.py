"""A TCP proxy between a process and its database server that cuts, delays, swallows and mutes what passes through."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import Literal, Self
from urllib.parse import urlsplit

from holdfast.cli.serving_process import find_uvloop

Mode = Literal["pass", "cut", "swallow", "mute"]

_CHUNK = 65_536
_PATIENCE_S = 30.0
_RESET = struct.pack("ii", 1, 0)
"""With this linger, closing a socket sends a reset instead of a goodbye."""


class FaultyProxy:
    """One proxy; it runs in a thread of its own, so that a blocked caller does not stop it."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._target = _address_of(url)
        self._mode: Mode = "pass"
        self._delay_s = 0.0
        self._lost: bytes | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._servers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        # All that the processes of a campaign say to their server passes through, and uvloop's costs half.
        self._loop = (find_uvloop(True) or asyncio.new_event_loop)()
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """The address of the same database, through the proxy."""
        user, at, _ = self._parts.netloc.rpartition("@")
        return self._parts._replace(netloc=f"{user}{at}127.0.0.1:{self._port}").geturl()

    def server_ports(self) -> list[int]:
        """Return the ports by which the server knows the connections that pass through."""
        ports = []
        for writer in list(self._servers):
            with contextlib.suppress(OSError, TypeError):
                if (found := _socket_of(writer)) is not None:
                    ports.append(found.getsockname()[1])
        return ports

    def pass_all(self) -> None:
        """Let everything through; what was swallowed is lost with its connection."""
        self._set("pass")

    def cut(self) -> None:
        """End every connection and accept no other."""
        self._set("cut")

    def reset(self) -> None:
        """End every connection as a machine does that was switched off and on; accept others."""
        for writer in list(self._writers):
            with contextlib.suppress(OSError):  # it may be closed already
                if (found := _socket_of(writer)) is not None:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.cut()
        self.pass_all()

    def swallow(self) -> None:
        """Keep every connection open and let nothing through."""
        self._set("swallow")

    def mute(self) -> None:
        """Let every request through and none of the answers."""
        self._set("mute")

    def mute_from(self, text: str) -> None:
        """Do the same from the first answer on that contains a text, whatever is under way before it."""
        self._set("pass", lost=text.encode())

    def delay(self, seconds: float) -> None:
        """Have everything take this much longer, in both directions; 0 ends it."""
        self._delay_s = seconds

    def retarget(self, url: str) -> None:
        """Lead new connections to another server, and end those to the first."""
        self._target = _address_of(url)
        self.cut()
        self.pass_all()

    def _set(self, mode: Mode, lost: bytes | None = None) -> None:
        done = threading.Event()

        def change() -> None:
            was, self._mode, self._lost = self._mode, mode, lost
            if mode == "cut" or was in ("swallow", "mute"):
                for writer in list(self._writers):
                    writer.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(change)
        assert done.wait(_PATIENCE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        self._servers.add(far_writer)
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, ("pass", "mute")),
                self._pump(far_reader, writer, ("pass",), answers=True),
            )
        finally:
            self._servers.discard(far_writer)
            for each in (writer, far_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        open_in: tuple[Mode, ...],
        answers: bool = False,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if answers and self._lost is not None and self._lost in data:
                    self._mode = "mute"
                if self._mode in open_in:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()


def _socket_of(writer: asyncio.StreamWriter) -> socket.socket | None:
    """Return the socket of a connection; uvloop has none any more once it is closed."""
    found: socket.socket | None = writer.get_extra_info("socket")
    return found


def _address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 5432
