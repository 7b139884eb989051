"""Waiting for chains to end: one thread polls for all waiters, and hints wake it early."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from holdfast.client.start_options import Id, id_text
from holdfast.commands.blockers import no_such_chain
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import (
    ChainCancelled,
    ChainDeleted,
    ChainFailed,
    ChainNotFound,
    HoldfastError,
    WaitTimeout,
)
from holdfast.core.records import TERMINAL, ChainRecord
from holdfast.notify.base import Hint, Notifier
from holdfast.storage.database import Database
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

log = logging.getLogger("holdfast.client")

MIN_PAUSE_S = 0.02
MAX_PAUSE_S = 0.5
GROWTH = 1.5
BATCH = 500
AGAIN_S = 20.0
"""Workers forget which chains are awaited; see `worker.notifications`."""


class Waiter(Future[ChainRecord]):
    """One caller that waits for a chain."""

    had_a_look = False
    """Whether its chain was found to be running, or the database could not say."""


class Waiting:
    """All waiters of this process. The thread runs only while there are any."""

    def __init__(
        self, database: Callable[[], Database], notifier: Callable[[], Notifier] | None
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._lock = threading.Lock()
        self._waiters: dict[str, list[Waiter]] = {}
        self._seen: set[str] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def wait(self, id: Id, timeout: Duration | None = None) -> ChainRecord:
        """Block until a chain has completed, and look at least once, whatever the timeout.

        Raises: WaitTimeout, ChainFailed, ChainCancelled, ChainDeleted, ChainNotFound.
        """
        chain, seconds = id_text(id), _seconds(timeout)
        if seconds != 0:
            waiter = self._join(chain)
            try:
                return _outcome(waiter.result(seconds))
            except TimeoutError:
                if waiter.had_a_look:
                    raise _too_long(chain, timeout) from None
            finally:
                self._leave(chain, waiter)
        database = self._database()
        return database.read(_look_once(database.store, chain, timeout))

    async def wait_async(self, id: Id, timeout: Duration | None = None) -> ChainRecord:
        """Async version of `wait`; cancelling the caller stops the wait."""
        chain, seconds = id_text(id), _seconds(timeout)
        if seconds != 0:
            waiter = self._join(chain)
            try:
                async with asyncio.timeout(seconds):
                    return _outcome(await asyncio.wrap_future(waiter))
            except TimeoutError:
                if waiter.had_a_look:
                    raise _too_long(chain, timeout) from None
            finally:
                self._leave(chain, waiter)
        database = self._database()
        return await database.read_async(_look_once(database.store, chain, timeout))

    def _join(self, chain: str) -> Waiter:
        waiter = Waiter()
        with self._lock:
            self._waiters.setdefault(chain, []).append(waiter)
            self._wake.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._watch, name="holdfast-waiting", daemon=True
                )
                self._thread.start()
        return waiter

    def _leave(self, chain: str, waiter: Waiter) -> None:
        waiter.cancel()
        with self._lock:
            left = [each for each in self._waiters.get(chain, ()) if each is not waiter]
            if left:
                self._waiters[chain] = left
            else:
                self._waiters.pop(chain, None)
                self._seen.discard(chain)
                if not self._waiters:
                    self._wake.set()

    def _watch(self) -> None:
        notifier = self._usable_notifier()
        listener = None if notifier is None else notifier.listen(self._on_hint)
        announced: dict[str, float] = {}
        pause = MIN_PAUSE_S
        try:
            while True:
                self._wake.clear()
                with self._lock:
                    if not self._waiters:
                        self._thread = None
                        return
                    wanted = list(self._waiters)
                if notifier is not None:
                    announced = _announce(notifier, wanted, announced)
                ended = self._look(wanted)
                pause = MIN_PAUSE_S if ended else min(MAX_PAUSE_S, pause * GROWTH)
                if self._wake.wait(pause):
                    pause = MIN_PAUSE_S
        finally:
            if listener is not None:
                listener.close()

    def _look(self, wanted: list[str]) -> int:
        """Read all awaited chains at once and resolve those that have ended or are gone."""
        answered = 0
        for place in range(0, len(wanted), BATCH):
            batch = wanted[place : place + BATCH]
            try:
                database = self._database()
                store = database.store
                found = {each.id: each for each in database.read(_read_ended(store, batch))}
                missing = {
                    each: database.read(no_such_chain(store, each))
                    for each in batch
                    if each not in found
                }
            except Exception as error:
                if not isinstance(error, HoldfastError) or not error.retryable:
                    answered += sum(self._answer(chain, error) for chain in batch)
                    continue
                # The waiters' own timeouts bound this; it resumes when the database is back.
                with self._lock:
                    for chain in batch:
                        self._mark(chain)
                time.sleep(MIN_PAUSE_S)
                continue
            for chain in batch:
                answered += self._answer(chain, found.get(chain) or missing[chain])
        return answered

    def _answer(self, chain: str, found: ChainRecord | Exception) -> int:
        with self._lock:
            if isinstance(found, ChainRecord) and found.state not in TERMINAL:
                self._seen.add(chain)
                self._mark(chain)
                return 0
            waiters = list(self._waiters.get(chain, ()))
            existed = chain in self._seen
        for each in waiters:
            if each.done() or not each.set_running_or_notify_cancel():
                continue
            if isinstance(found, ChainRecord):
                each.set_result(found)
            elif existed and isinstance(found, ChainNotFound):
                each.set_exception(ChainDeleted(f"chain {chain} was deleted"))
            else:
                each.set_exception(found)
        return len(waiters)

    def _mark(self, chain: str) -> None:
        for each in self._waiters.get(chain, ()):
            each.had_a_look = True

    def _usable_notifier(self) -> Notifier | None:
        """The notifier, unless hints are off or it cannot be created; then polling has to do."""
        try:
            return None if self._notifier is None else self._notifier()
        except HoldfastError as error:
            log.error("waiting for chains by polling; hints cannot be received: %s", error)
            return None

    def _on_hint(self, hint: Hint) -> None:
        if hint.kind == "look" or (hint.kind == "ended" and self._concerns(hint)):
            self._wake.set()

    def _concerns(self, hint: Hint) -> bool:
        with self._lock:
            return not hint.ids or any(each in self._waiters for each in hint.ids)


def _read_ended(store: Store, chains: list[str]) -> Op[list[ChainRecord]]:
    """Read chains; that one has ended is said only once it would survive a failover."""
    found = yield from store.chains.get(chains)
    if any(each.state in TERMINAL for each in found):
        yield from store.schema.confirm()
    return found


def _announce(
    notifier: Notifier, wanted: list[str], announced: dict[str, float]
) -> dict[str, float]:
    """Tell workers which chains are awaited, and repeat it from time to time."""
    now = time.monotonic()
    known = {each: at for each in wanted if (at := announced.get(each, 0.0)) > now - AGAIN_S}
    fresh = [each for each in wanted if each not in known]
    if fresh:
        notifier.send([Hint("awaited", ids=tuple(fresh))])
    return known | dict.fromkeys(fresh, now)


def _look_once(store: Store, chain: str, timeout: Duration | None) -> Op[ChainRecord]:
    found = yield from _read_ended(store, [chain])
    if not found:
        raise (yield from no_such_chain(store, chain))
    if found[0].state not in TERMINAL:
        raise _too_long(chain, timeout)
    return _outcome(found[0])


def _outcome(record: ChainRecord) -> ChainRecord:
    """Return a chain that has completed. Raises: ChainFailed, ChainCancelled."""
    reason = (record.error or "").partition("\n")[0]
    if record.state == "failed":
        raise ChainFailed(f"chain {record.id} failed: {reason}")
    if record.state == "cancelled":
        raise ChainCancelled(f"chain {record.id} was cancelled: {reason}")
    return record


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else milliseconds(timeout) / 1000


def _too_long(chain: str, timeout: Duration | None) -> WaitTimeout:
    return WaitTimeout(f"chain {chain} has not ended within {timeout}")
