"""Following chains: one thread reads for all readers of a process, and hints wake it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import msgspec

from holdfast.commands.blockers import no_such_chain
from holdfast.core.errors import ChainNotFound, HoldfastError
from holdfast.core.records import TERMINAL, State
from holdfast.notify.base import Hint, Notifier
from holdfast.storage.database import Database
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_output.emission_writer import chain_of_hint
from holdfast_output.output_store import READ_ROWS, BatchRecord, read_batches

log = logging.getLogger("holdfast.output")

POLL_S = 0.5
"""How often everything is read although no hint came: hints may be lost."""

ANNOUNCE_S = 20.0
"""Workers forget which chains are awaited; see `worker.notifications`."""


class NewOutput(msgspec.Struct, frozen=True):
    """What came for a reader: batches, or how the chain ended, once there is nothing more."""

    batches: Sequence[BatchRecord]
    state: State | None = None


class OutputWaiter(Future[NewOutput]):
    """One reader that waits for what follows a number."""

    def __init__(self, chain: str, after: int) -> None:
        super().__init__()
        self.chain = chain
        self.after = after


class Following:
    """The readers of a process. A reader asks for what follows its place, so a slow one is sent nothing meanwhile.

    A chain is read again when a hint says that it has new output, and from time to time.
    """

    def __init__(
        self, database: Callable[[], Database], notifier: Callable[[], Notifier] | None
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._readers: Counter[str] = Counter()
        self._waiters: dict[str, list[OutputWaiter]] = {}
        self._unread: set[str] = set()
        self._maybe_ended: set[str] = set()
        self._seen: dict[str, int] = {}
        self._thread: threading.Thread | None = None

    def enter(self, chain: str) -> None:
        """Count a reader of a chain."""
        with self._lock:
            self._readers[chain] += 1
            self._maybe_ended.add(chain)

    def leave(self, chain: str) -> None:
        """Count one reader of a chain less."""
        with self._lock:
            self._readers[chain] -= 1
            if not self._readers[chain]:
                del self._readers[chain]
                self._seen.pop(chain, None)
                self._unread.discard(chain)
                self._maybe_ended.discard(chain)
        self._wake.set()

    def ask(self, chain: str, after: int) -> OutputWaiter:
        """Return what will be resolved with what follows a number. Cancel it to stop waiting."""
        waiter = OutputWaiter(chain, after)
        with self._lock:
            self._waiters.setdefault(chain, []).append(waiter)
            # What is known to have been read by another reader need not be read again to learn that nothing followed.
            if after != self._seen.get(chain):
                self._unread.add(chain)
            if chain in self._unread or chain in self._maybe_ended:
                self._wake.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast following", daemon=True
                )
                self._thread.start()
        return waiter

    def _run(self) -> None:
        notifier = self._usable_notifier()
        listener = None if notifier is None else notifier.listen(self._on_hint)
        announced: dict[str, float] = {}
        read_at = float("-inf")
        try:
            while True:
                self._wake.wait(max(0.0, read_at + POLL_S - time.monotonic()))
                self._wake.clear()
                with self._lock:
                    if not self._readers:
                        self._thread = None
                        return
                    chains = list(self._readers)
                    if time.monotonic() - read_at >= POLL_S:
                        self._unread.update(chains)
                        self._maybe_ended.update(chains)
                        read_at = time.monotonic()
                    after, ended = self._take_wanted()
                if notifier is not None:
                    announced = _announce(notifier, chains, announced)
                if after:
                    self._read(after, ended)
        finally:
            if listener is not None:
                listener.close()

    def _take_wanted(self) -> tuple[dict[str, int], set[str]]:
        """Return where to read on in chains that have waiters, and which of them may have ended. Under the lock."""
        waiting = {
            chain: [each for each in waiters if not each.done()]
            for chain, waiters in self._waiters.items()
        }
        self._waiters = {chain: waiters for chain, waiters in waiting.items() if waiters}
        wanted = self._waiters.keys() & (self._unread | self._maybe_ended)
        ended = self._maybe_ended & wanted
        self._unread -= wanted
        self._maybe_ended -= wanted
        return {chain: min(each.after for each in self._waiters[chain]) for chain in wanted}, ended

    def _read(self, after: Mapping[str, int], ended: set[str]) -> None:
        try:
            database = self._database()
            states, batches = database.read(_read_chains(database.store, after, sorted(ended)))
            missing = [each for each in ended if each not in states]
            errors = {each: database.read(no_such_chain(database.store, each)) for each in missing}
        except Exception as error:
            if isinstance(error, HoldfastError) and error.retryable:
                # It goes on when the database is back; until then a reader waits as if nothing came.
                with self._lock:
                    self._unread.update(after)
                    self._maybe_ended.update(ended)
                return
            for chain in after:
                self._fail(chain, error)
            return
        for chain in after:
            if chain in errors:
                self._fail(chain, errors[chain])
            else:
                self._answer(chain, batches.get(chain, []), states.get(chain))

    def _answer(self, chain: str, found: Sequence[BatchRecord], state: State | None) -> None:
        """Resolve the waiters for whom there is something; the others go on waiting."""
        is_last = len(found) < READ_ROWS
        answers: list[tuple[OutputWaiter, NewOutput]] = []
        with self._lock:
            if found:
                self._seen[chain] = max(self._seen.get(chain, 0), found[-1].last)
            if not is_last:
                self._unread.add(chain)
                self._wake.set()
            if state in TERMINAL:
                # Each reader is to hear of the end, once it has all that was before it.
                self._maybe_ended.add(chain)
            left = []
            for waiter in self._waiters.pop(chain, []):
                own = [each for each in found if each.last > waiter.after]
                if own:
                    answers.append((waiter, NewOutput(own)))
                elif state in TERMINAL and is_last:
                    answers.append((waiter, NewOutput((), state)))
                else:
                    left.append(waiter)
            if left:
                self._waiters[chain] = left
        for waiter, answer in answers:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(answer)

    def _fail(self, chain: str, error: Exception) -> None:
        with self._lock:
            waiters = self._waiters.pop(chain, [])
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                if isinstance(error, ChainNotFound) and waiter.after:
                    # It was there before: retention or an operator has removed it.
                    waiter.set_result(NewOutput((), "cancelled"))
                else:
                    waiter.set_exception(error)

    def _usable_notifier(self) -> Notifier | None:
        try:
            return None if self._notifier is None else self._notifier()
        except HoldfastError as error:
            log.error("following chains by polling; hints cannot be received: %s", error)
            return None

    def _on_hint(self, hint: Hint) -> None:
        chain = chain_of_hint(hint)
        with self._lock:
            if chain is not None:
                found = set(self._readers) if chain == "" else {chain} & self._readers.keys()
                self._unread |= found
            else:
                found = set()
            if hint.kind in ("look", "ended"):
                ended = self._readers.keys() & (set(hint.ids) or self._readers.keys())
                self._maybe_ended |= ended
                found |= ended
        if found:
            self._wake.set()


def _read_chains(
    store: Store, after: Mapping[str, int], ended: Sequence[str]
) -> Op[tuple[dict[str, State], Mapping[str, list[BatchRecord]]]]:
    """Read what follows, after the states: a chain that had ended by then emits nothing more."""
    states: dict[str, State] = {}
    if ended:
        found = yield from store.chains.get(ended)
        states = {each.id: each.state for each in found}
        if any(each in TERMINAL for each in states.values()):
            yield from store.schema.confirm()
    return states, (yield from read_batches(after))


def _announce(
    notifier: Notifier, chains: Sequence[str], announced: Mapping[str, float]
) -> dict[str, float]:
    """Tell workers which chains are awaited, so that they send a hint at their end."""
    now = time.monotonic()
    known = {
        each: at for each in chains if (at := announced.get(each, float("-inf"))) > now - ANNOUNCE_S
    }
    fresh = [each for each in chains if each not in known]
    if fresh:
        notifier.send([Hint("awaited", ids=tuple(fresh))])
    return known | dict.fromkeys(fresh, now)
