"""The notifier over a server: batches leave on one connection, and all listeners of a process share another.

The listener proves that hints arrive by echoes to itself, and reconnects when they do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from holdfast.notify.base import LOOK_EVERYWHERE, Hint, OnHint, safe_callback
from holdfast.notify.encoding import decode, encode
from holdfast.notify.sender import BufferedNotifier, SenderTimings

log = logging.getLogger("holdfast.notify")

PUBLISH_TIMEOUT_S = 5.0
CANCEL_EVERY_S = 0.05


Deliver = Callable[[str], bool]
"""Takes a payload; returns whether that was enough for now."""


class ServerConnection(Protocol):
    """An open connection to a server, used from one event loop. If a method raises, it is closed and replaced."""

    async def publish(self, payloads: Sequence[str]) -> None:
        """Send payloads to all subscribers, and return when the server has them."""

    async def subscribe(self) -> None:
        """Start receiving payloads and the echoes of this connection."""

    async def echo(self, payload: str) -> None:
        """Send a payload that only this connection receives."""

    async def receive(self, timeout: float, deliver: Deliver) -> None:
        """Deliver payloads as they arrive; return when one was enough or on timeout, or sooner."""

    async def close(self) -> None:
        """Close without waiting for the server."""


Purpose = Literal["hint sender", "hint listener"]
Connect = Callable[[Purpose], Awaitable[ServerConnection]]


@dataclass(frozen=True, slots=True)
class ListenerTimings:
    """How often a connection is proven alive, how long its server may take, how fast a lost one is replaced."""

    prove_every_s: float = 10.0
    answer_within_s: float = 5.0
    retry_first_s: float = 0.1
    retry_cap_s: float = 5.0
    close_s: float = 5.0


class ServerNotifier(BufferedNotifier):
    """A `Notifier` over a server; it connects at its first use."""

    def __init__(
        self,
        connect: Connect,
        sender_timings: SenderTimings | None = None,
        listener_timings: ListenerTimings | None = None,
    ) -> None:
        shared = _SharedListeners(
            lambda on_hint: ServerListener(connect, on_hint, listener_timings)
        )
        super().__init__(lambda: ServerPublisher(connect), shared.listen, sender_timings)


class ServerPublisher:
    """A `sender.Publisher` over a connection; its loop runs only while a batch is sent."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._runner = _new_runner()
        self._connection: ServerConnection | None = None

    def publish(self, hints: Sequence[Hint]) -> None:
        self._runner.run(self._publish(encode(hints)))

    def close(self) -> None:
        self._runner.run(self._disconnect())
        self._runner.close()

    async def _publish(self, payloads: list[str]) -> None:
        async with asyncio.timeout(PUBLISH_TIMEOUT_S):
            if self._connection is not None and await self._reuse(self._connection, payloads):
                return
            self._connection = await self._connect("hint sender")
            try:
                await self._connection.publish(payloads)
            except BaseException:
                await self._disconnect()
                raise

    async def _reuse(self, connection: ServerConnection, payloads: list[str]) -> bool:
        """Use the connection of the last batch, which may have died unnoticed since then."""
        try:
            await connection.publish(payloads)
        except BaseException as error:
            await self._disconnect()
            if not isinstance(error, Exception):
                raise
            return False
        return True

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class ServerListener:
    """A `Listener` with a thread and a connection of its own."""

    def __init__(
        self, connect: Connect, on_hint: OnHint, timings: ListenerTimings | None = None
    ) -> None:
        self._connect = connect
        self._on_hint = safe_callback(on_hint)
        self._timings = timings or ListenerTimings()
        self._proven_at = 0.0
        self._proven = threading.Event()
        self._proofs = 0
        self._failures = 0
        self._closing = asyncio.Event()
        self._runner = _new_runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast listener", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        fresh_s = self._timings.prove_every_s + 2 * self._timings.answer_within_s
        return self._proven.is_set() and time.monotonic() - self._proven_at < fresh_s

    @property
    def reconnects(self) -> int:
        return max(0, self._proofs - 1)

    def wait_until_alive(self, timeout: float) -> bool:
        return self._proven.wait(timeout)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            # The loop of a listener that was closed before is closed too.
            self._loop.call_soon_threadsafe(self._closing.set)
        if self._thread is not threading.current_thread():
            self._thread.join(self._timings.close_s)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._listen_until_closed())

    async def _listen_until_closed(self) -> None:
        listening = asyncio.create_task(self._listen())
        await self._closing.wait()
        while not listening.done():
            # Repeatedly: before Python 3.12 asyncio.wait_for, in a driver, may swallow a cancellation.
            listening.cancel()
            await asyncio.wait((listening,), timeout=CANCEL_EVERY_S)
        self._proven.clear()

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except Exception as error:
                self._on_lost(error)
            await asyncio.sleep(self._pause())

    async def _listen_once(self) -> None:
        async with asyncio.timeout(self._timings.answer_within_s):
            connection = await self._connect("hint listener")
        try:
            async with asyncio.timeout(self._timings.answer_within_s):
                await connection.subscribe()
            # Hints sent before now were missed.
            self._on_hint(LOOK_EVERYWHERE)
            await self._follow(connection)
        finally:
            await connection.close()

    async def _follow(self, connection: ServerConnection) -> None:
        """Deliver what arrives. Raises when the connection is lost or an echo does not return."""
        while True:
            proof = secrets.token_hex(8)
            async with asyncio.timeout(self._timings.answer_within_s):
                await connection.echo(proof)
            if not await self._receive(connection, self._timings.answer_within_s, proof):
                raise TimeoutError(f"no echo within {self._timings.answer_within_s:g} s")
            self._mark_proven()
            await self._receive(connection, self._timings.prove_every_s)

    async def _receive(
        self, connection: ServerConnection, seconds: float, proof: str | None = None
    ) -> bool:
        """Deliver for some time, or until the proof arrives; return whether it did."""
        until = time.monotonic() + seconds
        proven = False

        def deliver(payload: str) -> bool:
            nonlocal proven
            if payload == proof:
                proven = True
            else:
                self._deliver(payload)
            return proven

        while not proven and (left := until - time.monotonic()) > 0:
            await connection.receive(left, deliver)
        return proven

    def _mark_proven(self) -> None:
        self._proven_at = time.monotonic()
        if self._proven.is_set():
            return
        if self._failures:
            log.info("hints arrive again")
        self._failures = 0
        self._proofs += 1
        self._proven.set()

    def _on_lost(self, error: Exception) -> None:
        was_proven = self._proven.is_set()
        self._proven.clear()
        if self._failures == 0:
            log.warning(
                "hints don't arrive; falling back to polling: %s", str(error) or repr(error)
            )
        self._failures += 1
        if was_proven:
            # Pollers that sleep long because hints would wake them must learn that none will.
            self._on_hint(LOOK_EVERYWHERE)

    def _pause(self) -> float:
        longest = self._timings.retry_first_s * 2.0 ** min(self._failures, 30)
        return min(self._timings.retry_cap_s, longest) * (0.5 + random.random() / 2)

    def _deliver(self, payload: str) -> None:
        for hint in decode(payload):
            self._on_hint(hint)


class _SharedListeners:
    """The listeners of one process. Their connection is opened for the first of them and closed with the last.

    A worker, its cycles and waiting callers each listen, and the connections of a server are limited.
    """

    def __init__(self, open_source: Callable[[OnHint], ServerListener]) -> None:
        self._open = open_source
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._listeners: tuple[_SharedListener, ...] = ()
        self._source: ServerListener | None = None

    def listen(self, on_hint: OnHint) -> _SharedListener:
        if os.getpid() != self._pid:
            # After a fork the reading thread is only in the parent.
            self._reset()
        with self._lock:
            callback = safe_callback(on_hint)
            is_first = self._source is None
            if self._source is None:
                self._source = self._open(self._deliver)
            listener = _SharedListener(callback, self._source, self._leave)
            self._listeners = (*self._listeners, listener)
        if not is_first:
            # It missed what arrived before, as if the connection had been opened just now.
            callback(LOOK_EVERYWHERE)
        return listener

    def _deliver(self, hint: Hint) -> None:
        # The connection may deliver before the listener that opened it is added.
        with self._lock:
            listeners = self._listeners
        for each in listeners:
            each.on_hint(hint)

    def _leave(self, listener: _SharedListener) -> None:
        with self._lock:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
            if self._listeners or self._source is not listener.source:
                return
            self._source = None
        listener.source.close()


class _SharedListener:
    """A `Listener` on a connection that others use too."""

    def __init__(
        self, on_hint: OnHint, source: ServerListener, leave: Callable[[_SharedListener], None]
    ) -> None:
        self.on_hint = on_hint
        self.source = source
        self._leave = leave
        self._reconnects = source.reconnects

    @property
    def alive(self) -> bool:
        return self.source.alive

    @property
    def reconnects(self) -> int:
        return self.source.reconnects - self._reconnects

    def wait_until_alive(self, timeout: float) -> bool:
        return self.source.wait_until_alive(timeout)

    def close(self) -> None:
        self._leave(self)


class _Loop(asyncio.SelectorEventLoop):
    """The loop of a thread of ours. psycopg needs a selector, which is not Windows' default."""

    async def getaddrinfo(self, *place: Any, **hints: Any) -> Any:
        try:
            return await super().getaddrinfo(*place, **hints)
        except RuntimeError:
            # The interpreter is ending and its executors take nothing more, but the last hints must leave.
            return socket.getaddrinfo(*place, **hints)


def _new_runner() -> asyncio.Runner:
    return asyncio.Runner(loop_factory=_Loop)
