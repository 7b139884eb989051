"""Writes what all attempts of a process emit: one transaction for all of them, at most every 50 ms."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.core.events import EventSpec, Observer, wants_of
from holdfast.core.instants import Instant
from holdfast.core.records import Held
from holdfast.notify.base import Hint
from holdfast.observe import CompositeObserver
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.attempt import lost_reason
from holdfast.worker.job import Job
from holdfast_output.emission import Emission, OutputLimits
from holdfast_output.events import OUTPUT_REFUSED, OUTPUT_WRITTEN
from holdfast_output.output_store import NewBatch, append

if TYPE_CHECKING:
    from holdfast.app import Holdfast

log = logging.getLogger("holdfast.output")

RETRY_MAX_S = 1.0
IDLE_S = 5.0
"""The thread ends after so long without anything to write."""

_HINT = "output:"


def output_hint(chain: str) -> Hint:
    """Return the hint that a chain has new output; to workers it is an unknown type."""
    return Hint("due", f"{_HINT}{chain}")


def chain_of_hint(hint: Hint) -> str | None:
    """Return the chain whose output a hint is about; "" for any, None for none."""
    if hint.kind == "look" or hint.type == "*":
        return ""
    return hint.type[len(_HINT) :] if hint.type.startswith(_HINT) else None


class EmissionWriter:
    """The emissions of a process, and the thread that writes them. It runs only while there is something to write."""

    def __init__(self, app: Holdfast, interval_s: float, limits: OutputLimits) -> None:
        self._app = app
        self._interval_s = interval_s
        self._limits = limits
        self._condition = threading.Condition()
        self._emissions: dict[int, Emission] = {}
        self._thread: threading.Thread | None = None
        self._observer: Observer | None = None
        self._is_woken = self._is_urgent = False

    @property
    def store(self) -> Store:
        """The store of the application's database."""
        return self._app.database.store

    def now(self) -> Instant | None:
        """The instant that replaces the database's clock, in tests."""
        return self._app.instant()

    def open(self, job: Job[Any]) -> Emission:
        """Return the emission of an attempt, the same for all its threads."""
        with self._condition:
            key = id(job.attempt_state)
            found = self._emissions.get(key)
            if found is None:
                found = self._emissions[key] = Emission(job, self, self._limits)
            return found

    def register(self, emission: Emission) -> None:
        """Write for an emission that goes on."""
        with self._condition:
            self._emissions[id(emission.attempt)] = emission

    def drop(self, emission: Emission) -> None:
        """Forget an emission whose attempt has ended."""
        with self._condition:
            self._emissions.pop(id(emission.attempt), None)

    def wake(self, at_once: bool = False) -> None:
        """Have what was added written soon, or without waiting for more."""
        with self._condition:
            self._is_woken = True
            self._is_urgent = self._is_urgent or at_once
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast output", daemon=True
                )
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        last, failures = float("-inf"), 0
        while (due := self._wait_for_work(last, failures)) is not None:
            try:
                is_left = self._write_or_refuse(due)
                failures = 0
            except Exception as error:
                if not failures:
                    log.warning("what handlers emit cannot be written, trying again: %s", error)
                failures, is_left = failures + 1, True
            last = time.monotonic()
            if is_left:
                self.wake()

    def _wait_for_work(self, last: float, failures: int) -> list[Emission] | None:
        """Wait for what is to be written; None after a long time without anything."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._is_woken, IDLE_S):
                self._thread = None
                return None
            # The first item goes at once; those that follow it within a moment go together.
            pause = (
                self._interval_s if not failures else min(RETRY_MAX_S, 0.05 * 2 ** min(failures, 9))
            )
            self._condition.wait_for(
                lambda: self._is_urgent and not failures, max(0.0, last + pause - time.monotonic())
            )
            self._is_woken = self._is_urgent = False
            emissions = self._emissions.values()
            return [each for each in emissions if each.has_work and not each.is_deferred]

    def _write_or_refuse(self, due: Sequence[Emission]) -> bool:
        """Write what there is; refuse the emission that cannot be written, for which the others are not to blame."""
        try:
            return self._write(due)
        except Exception as error:
            if isinstance(error, HoldfastError) and error.retryable:
                raise
            if len(due) > 1:
                left = [self._write_or_refuse([each]) for each in due]
                return any(left)
            self._refuse(due[0], error)
            return False

    def _write(self, due: Sequence[Emission]) -> bool:
        """Write what there is; return whether something is left. Raises: the database's errors."""
        if not due:
            return False
        database = self._app.database
        taken, written = database.run(self._append(due))
        missed: list[Emission] = []
        chains: list[str] = []
        for emission, batches in taken:
            done = [each for each in batches if (each.chain_id, each.last) in written]
            # Also where a function only said again what is stored: its end waits for that.
            items = emission.acknowledge(done)
            if done:
                chains.append(emission.held.chain)
                size = sum(len(each.data) for each in done)
                self._tell(emission, OUTPUT_WRITTEN, items=items, bytes=size)
            if len(done) < len(batches):
                missed.append(emission)
        if chains and self._app.sends_hints:
            self._app.notifier.send([output_hint(each) for each in dict.fromkeys(chains)])
        if missed:
            self._refuse_lost(missed)
        return any(each.has_work for each in due)

    def _append(
        self, due: Sequence[Emission]
    ) -> Op[tuple[list[tuple[Emission, list[NewBatch]]], set[tuple[str, int]]]]:
        taken = []
        for emission in due:
            yield from emission.open()
            try:
                taken.append((emission, emission.cut()))
            except HoldfastError as error:
                self._refuse(emission, error)
        batches = [each for _, some in taken for each in some]
        written = (yield from append(batches, self.now())) if batches else set()
        return taken, written

    def _refuse_lost(self, missed: Sequence[Emission]) -> None:
        """Of what was not written, leave what is only locked for the next time, and refuse the rest."""
        pairs = [Held(each.held.job, each.held.token) for each in missed]
        database = self._app.database
        found = database.read(database.store.jobs.lease_status(pairs))
        states = {each.id: each for each in found}
        for emission in missed:
            status = states[emission.held.job]
            if status.lease != "held":
                reason = lost_reason(status) or "already_completed"
                self._refuse(emission, LeaseLost(reason, "what was emitted was refused"))

    def _refuse(self, emission: Emission, error: Exception) -> None:
        emission.refuse(error)
        self._tell(emission, OUTPUT_REFUSED, error=str(error))

    def _tell(self, emission: Emission, spec: EventSpec, **fields: Any) -> None:
        if self._observer is None:
            self._observer = self._app.observer() or CompositeObserver()
        if wants_of(self._observer)(spec.name):
            told = {"type": emission.attempt.claimed.type, "job_id": emission.held.job}
            self._observer.observe(spec(**told, **fields))
