"""A run of a cycle as its handler sees it: slot, shard, whether to stop, fenced transactions; and how it is called."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, cast

from holdfast.core.codec import LARGEST_INT
from holdfast.core.cycle import CycleSpec, HeldSlot, Slot
from holdfast.core.errors import Aborted, InvalidOption, LeaseLost, OutputInvalid, ShardPairInvalid
from holdfast.core.instants import to_datetime
from holdfast.core.redaction import printable
from holdfast.core.signatures import is_async
from holdfast.scheduler.runner import RunnerContext, RunnerReport
from holdfast.storage.database import Database
from holdfast.storage.operation import run, run_async
from holdfast.worker.clock import all_ended
from holdfast.worker.handler_threads import HandlerThreads


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of the tenants, divided by a hash that is the same on every replica."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ShardPairInvalid(f"there is no shard {self.index} of {self.count}")

    def owns(self, tenant: object) -> bool:
        """Return whether a tenant, given by its id, belongs to this shard."""
        digest = blake2b(str(tenant).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.index

    def name_of(self, cycle: str) -> str:
        """Return the name under which this shard of a cycle locks, runs and is recorded."""
        return f"{cycle}:{self.index}/{self.count}"


WHOLE = Shard(0, 1)
"""All tenants."""


CycleAbort = Literal["lock_lost", "slot_lost", "timeout", "shutdown"]


class CycleRun:
    """One run of one slot. All of it may be used from the handler's thread.

    `shard` is the part of the tenants this run serves, all of them unless the cycle is sharded; `max_items` is how many
    items it should take at most: the cycle's own limit, or WORKER_TICK_RUNNER_MAX_ITEMS.
    """

    def __init__(
        self,
        name: str,
        slot: Slot,
        run_id: str,
        worker: str,
        shard: Shard,
        database: Database,
        held: HeldSlot | None,
        max_items: int | None = None,
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.worker = worker
        self.shard = shard
        self.max_items = max_items
        self.counts = RunnerReport()
        self.numbers: dict[str, int | float] = {}
        self.held = held
        self._slot = slot
        self._database = database
        self._flag = threading.Event()
        self._reason: CycleAbort | None = None
        self._on_abort: Callable[[], object] | None = None
        self._counting = threading.Lock()

    @property
    def slot(self) -> datetime:
        """The time this run is for, or when it was triggered."""
        return to_datetime(self._slot.due_at)

    @property
    def key(self) -> str:
        """The idempotency key of the slot: the same for every run of it, on every replica."""
        return f"{self.name}:{self._slot.name}"

    @property
    def attempt(self) -> int:
        """Which run of the slot this is, from 1."""
        return 1 if self.held is None else self.held.runs

    @property
    def aborted(self) -> bool:
        """Whether the handler must stop."""
        return self._reason is not None

    @property
    def abort_reason(self) -> CycleAbort | None:
        """Why the handler must stop."""
        return self._reason

    def checkpoint(self) -> None:
        """Raise Aborted when the handler must stop; cheap enough for inner loops."""
        if self._reason is not None:
            raise Aborted(self._reason, "the run was aborted")

    def wait_for_abort(self, seconds: float | None = None) -> bool:
        """Sleep in a thread until aborted or the time is over; return whether it was aborted."""
        return self._flag.wait(seconds)

    def count(self, name: str, number: int | float = 1) -> None:
        """Add to a counter of this run: processed, updated, skipped, errors, or one of your own.

        Counters are recorded with the run and added to the metric holdfast.cycle.items. Raises: InvalidOption.
        """
        _check_counter(name, number)
        with self._counting:
            if name in _COUNTED:
                setattr(self.counts, name, getattr(self.counts, name) + int(number))
                return
            if name not in self.numbers and len(self.numbers) >= MAX_COUNTERS:
                raise InvalidOption(
                    f"{name!r} would be more than {MAX_COUNTERS} counters of one run",
                    help="count by kind, not by tenant or id: each name is a metric series",
                )
            self.numbers[name] = self.numbers.get(name, 0) + number

    def room(self, wanted: int) -> int:
        """Return how many of the wanted items `max_items` still allows, after those counted as processed."""
        if self.max_items is None:
            return wanted
        return max(0, min(wanted, self.max_items - self.counts.processed))

    def transaction(self) -> FencedTransaction:
        """Open a transaction that commits only while this run holds its slot: `with` or `async with`."""
        return FencedTransaction(self._database, self.held)

    def abort(self, reason: CycleAbort) -> None:
        """Abort the handler; the first reason counts."""
        if self._reason is None:
            self._reason = reason
            self._flag.set()
            if self._on_abort is not None:
                self._on_abort()

    def on_abort(self, callback: Callable[[], object]) -> None:
        """Call back when the handler is aborted, now if it was already."""
        self._on_abort = callback
        if self._reason is not None:
            callback()


class FencedTransaction:
    """A transaction whose last statement checks that the slot is held. Raises: LeaseLost, after a rollback."""

    def __init__(self, database: Database, held: HeldSlot | None) -> None:
        self._sync = _fenced_transaction(database, held)
        self._async = _fenced_async(database, held)

    def __enter__(self) -> Any:
        return self._sync.__enter__()

    def __exit__(self, *details: Any) -> bool | None:
        return self._sync.__exit__(*details)

    async def __aenter__(self) -> Any:
        return await self._async.__aenter__()

    async def __aexit__(self, *details: Any) -> bool | None:
        return await self._async.__aexit__(*details)


@contextmanager
def _fenced_transaction(database: Database, held: HeldSlot | None) -> Iterator[Any]:
    with database.transaction() as tx:
        yield tx
        if held is not None:
            _check(run(database.store.slots.fence(held), tx))


@asynccontextmanager
async def _fenced_async(database: Database, held: HeldSlot | None) -> AsyncIterator[Any]:
    async with database.transaction_async() as tx:
        yield tx
        if held is not None:
            _check(await run_async(database.store.slots.fence(held), tx))


def _check(holds: bool) -> None:
    if not holds:
        raise LeaseLost("slot_lost", "the run no longer holds its slot")


_COUNTED = frozenset(RunnerReport.__struct_fields__)
_COUNTER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")

MAX_COUNTERS = 32
"""Counters of its own that a run may have."""


STOP_GRACE_S = 1.0
"""How long an aborted handler may take to stop before it is abandoned."""


class Abandoned(Exception):
    """The handler was aborted and did not stop."""


class CycleResult(NamedTuple):
    """How a handler ended, and whether its caller was cancelled meanwhile."""

    error: BaseException | None
    was_cancelled: bool


WrapRun = Callable[[str, str], AbstractContextManager[object]]
"""Returns a context manager around a run, by the cycle's name and the slot's time; it sees what the handler raises."""


def wrap_nothing(cycle: str, slot: str) -> AbstractContextManager[object]:
    """Wrap a run in nothing."""
    return nullcontext()


async def call_handler(
    spec: CycleSpec,
    run: CycleRun,
    context: RunnerContext,
    threads: HandlerThreads,
    wrap_run: WrapRun,
) -> CycleResult:
    """Run the handler until it ends, or is aborted and does not stop in time; never raises."""
    task = asyncio.create_task(
        _call(spec, run, threads, wrap_run), name=f"holdfast cycle {run.name}"
    )
    ended_or_aborted = asyncio.Event()
    task.add_done_callback(lambda _: ended_or_aborted.set())

    def stop() -> None:
        task.cancel()
        ended_or_aborted.set()

    run.on_abort(stop)
    was_cancelled = False
    while not task.done():
        try:
            left_ms = context.budget.remaining_ms(context.now_ms())
            limit_s = None if left_ms is None else left_ms / 1000
            if not await context.clock.wait(ended_or_aborted, limit_s):
                run.abort("timeout")
            if not await all_ended(context.clock, [task], STOP_GRACE_S):
                # A thread cannot be stopped from outside, nor a coroutine that ignores its cancellation.
                context.abandoned.append(task)
                return CycleResult(Abandoned("the handler did not stop"), was_cancelled)
        except asyncio.CancelledError:
            was_cancelled = True
            is_late = context.budget.is_exhausted(context.now_ms())
            run.abort("timeout" if is_late else "shutdown")
    try:
        returned, error = task.result()
        if error is None:
            _count(run, returned)
    except (Exception, asyncio.CancelledError) as failure:
        error = failure
    return CycleResult(error, was_cancelled)


async def _call(
    spec: CycleSpec, run: CycleRun, threads: HandlerThreads, wrap_run: WrapRun
) -> tuple[Any, BaseException | None]:
    """Return the result or the error; a SystemExit raised in a task would end this process."""
    try:
        with wrap_run(run.name, run.slot.isoformat()):
            if is_async(spec.handler):
                return await spec.handler(run), None
            # The run's abort flag is all that reaches a thread.
            return await threads.run(spec.handler, run), None
    except BaseException as error:
        return None, error


def _count(run: CycleRun, answer: object) -> None:
    """Count what a handler returned: nothing, a number of items, a report, or numbers by name."""
    match answer:
        case None:
            # A run is no item: a loop that found nothing to do is to rest.
            pass
        case int() if _is_count(answer):
            run.counts.processed += answer
        case RunnerReport():
            run.counts.add(answer)
        case Mapping():
            _count_by_name(run, answer)
        case _:
            raise _invalid_output(run, answer)


def _count_by_name(run: CycleRun, answer: Mapping[Any, Any]) -> None:
    for name, number in answer.items():
        if name in _COUNTED and _is_count(number):
            setattr(run.counts, name, getattr(run.counts, name) + int(number))
        elif name not in _COUNTED and _is_name(name) and _is_number(number):
            run.numbers[name] = number
        else:
            raise _invalid_output(run, answer)
    if len(run.numbers) > MAX_COUNTERS:
        raise OutputInvalid(
            f"the cycle {run.name} counted {len(run.numbers)} things of its own",
            help=f"return at most {MAX_COUNTERS} numbers by name",
        )


def _check_counter(name: object, number: object) -> None:
    if not isinstance(name, str) or not _COUNTER.fullmatch(name):
        raise InvalidOption(
            f"{repr(name)[:70]} is not the name of a counter",
            help="use a letter, then letters, digits, dots, dashes and underscores, 60 at most",
        )
    if not _is_count(number):
        raise InvalidOption(f"{repr(number)[:60]} cannot be counted: use a number of at least 0")


def _is_count(number: object) -> bool:
    return _is_number(number) and cast(float, number) >= 0


def _is_number(number: object) -> bool:
    """Return whether every reader of the record can parse it; a NaN is not below anything."""
    is_numeric = isinstance(number, int | float) and not isinstance(number, bool)
    return is_numeric and abs(cast(float, number)) <= LARGEST_INT


def _is_name(name: object) -> bool:
    return isinstance(name, str) and printable(name) == name


def _invalid_output(run: CycleRun, answer: object) -> OutputInvalid:
    return OutputInvalid(
        f"the cycle {run.name} returned {type(answer).__name__}",
        help="return nothing, a number of items, a RunnerReport, or numbers by name",
    )
