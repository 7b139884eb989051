"""Listens on a line from its own thread, proves that hints arrive, and reconnects when they do not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.notify.base import LOOK_EVERYWHERE, OnHint, guarded
from holdfast.notify.connection import Dial, Line, new_runner
from holdfast.notify.encoding import decode

log = logging.getLogger("holdfast.notify")

CANCEL_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a line proves itself, how long its server may take, how fast a lost one is replaced."""

    prove_every_s: float = 10.0
    answer_within_s: float = 5.0
    retry_first_s: float = 0.1
    retry_cap_s: float = 5.0
    close_s: float = 5.0


class Silent(Exception):
    """A server took an echo and did not return it."""


class LineListener:
    """See `port.Listener`."""

    def __init__(
        self,
        dial: Dial,
        on_hint: OnHint,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._dial = dial
        self._on_hint = guarded(on_hint)
        self._patience = patience or Patience()
        self._clock = clock
        self._chance = chance
        self._proven_at = 0.0
        self._proven = threading.Event()
        self._proofs = 0
        self._failures = 0
        self._closing = asyncio.Event()
        self._runner = new_runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast listener", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        fresh_s = self._patience.prove_every_s + 2 * self._patience.answer_within_s
        return self._proven.is_set() and self._clock() - self._proven_at < fresh_s

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
            self._thread.join(self._patience.close_s)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._listen_until_closed())

    async def _listen_until_closed(self) -> None:
        listening = asyncio.create_task(self._listen())
        await self._closing.wait()
        while not listening.done():
            # Again and again: before Python 3.12 asyncio.wait_for, in a driver, may swallow one.
            listening.cancel()
            await asyncio.wait((listening,), timeout=CANCEL_EVERY_S)
        self._proven.clear()

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except Exception as error:
                self._lost(error)
            await asyncio.sleep(self._pause())

    async def _listen_once(self) -> None:
        async with asyncio.timeout(self._patience.answer_within_s):
            line = await self._dial("hint listener")
        try:
            async with asyncio.timeout(self._patience.answer_within_s):
                await line.subscribe()
            # Hints of the time before were missed.
            self._on_hint(LOOK_EVERYWHERE)
            await self._follow(line)
        finally:
            await line.close()

    async def _follow(self, line: Line) -> None:
        """Deliver what arrives. Raises when the line is lost or does not return its echoes."""
        while True:
            proof = secrets.token_hex(8)
            async with asyncio.timeout(self._patience.answer_within_s):
                await line.echo(proof)
            if not await self._hear(line, self._patience.answer_within_s, proof):
                raise Silent(f"no echo within {self._patience.answer_within_s:g} s")
            self._mark_proven()
            await self._hear(line, self._patience.prove_every_s)

    async def _hear(self, line: Line, seconds: float, proof: str | None = None) -> bool:
        """Deliver for some time, or until the proof is heard; return whether it was."""
        until = self._clock() + seconds
        proven = False
        while not proven and (left := until - self._clock()) > 0:
            payloads = await line.receive(left)
            proven = proof in payloads
            for payload in payloads:
                if payload != proof:
                    self._deliver(payload)
        return proven

    def _mark_proven(self) -> None:
        self._proven_at = self._clock()
        if self._proven.is_set():
            return
        if self._failures:
            log.info("hints arrive again")
        self._failures = 0
        self._proofs += 1
        self._proven.set()

    def _lost(self, error: Exception) -> None:
        was_proven = self._proven.is_set()
        self._proven.clear()
        if self._failures == 0:
            log.warning("hints do not arrive, the worker polls: %s", str(error) or repr(error))
        self._failures += 1
        if was_proven:
            # Whoever sleeps because hints would wake them must learn that none will.
            self._on_hint(LOOK_EVERYWHERE)

    def _pause(self) -> float:
        longest = self._patience.retry_first_s * 2.0 ** min(self._failures, 30)
        return min(self._patience.retry_cap_s, longest) * (0.5 + self._chance() / 2)

    def _deliver(self, payload: str) -> None:
        for hint in decode(payload):
            self._on_hint(hint)
