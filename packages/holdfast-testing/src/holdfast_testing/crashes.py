"""Lets the worker of a durable function die at each of its boundaries, and compares the end with an undisturbed run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from holdfast.commands.attempts import reap_leases
from holdfast.core.instants import to_instant
from holdfast.core.registry import Target
from holdfast.storage.operation import Op, at
from holdfast.storage.store import Store
from holdfast_testing.fresh_state import clear_in_transaction
from holdfast_testing.test_clock import MovedClock

if TYPE_CHECKING:
    from holdfast_testing.kit import Kit

ROUNDS_MAX = 1_000
"""How often the jobs of one run may come to rest before its function has ended."""
WAITS_MAX = 1_000
LEASE_OVER_US = 86_400_000_000
"""A dead worker's lease is over by then."""


class Death:
    """Counts the boundaries that functions reach; at one of them the worker dies."""

    def __init__(self, number: int = 0) -> None:
        """`number` counts from 1; by default it never dies."""
        self._number = number
        self._reached = 0
        self.boundary: str | None = None
        """Where it died."""

    def is_due(self, boundary: str) -> bool:
        """Count a boundary; whether the worker dies there. From any thread."""
        self._reached += 1
        if self._reached != self._number:
            return False
        self.boundary = boundary
        return True


class Outcome(NamedTuple):
    """What is compared: how the chain ended, and what the caller says of its own rows."""

    state: str
    output: Any
    rows: Any


class CrashRuns(NamedTuple):
    """The runs of one function; `reset` is called before each, `rows` after it."""

    kit: Kit
    clock: MovedClock
    target: Target
    input: Any
    signals: Mapping[str, Any]
    rows: Callable[[], Any] | None
    reset: Callable[[], Any] | None

    def compare(self) -> CrashPlan:
        """Return at how many boundaries the worker died. Raises: AssertionError when one death made a difference."""
        undisturbed = yield from self._run(Death())
        number = 1
        while True:
            death = Death(number)
            outcome = yield from self._run(death)
            if death.boundary is None:
                return number - 1
            if outcome != undisturbed:
                raise AssertionError(_describe(death.boundary, outcome, undisturbed))
            number += 1

    def _run(self, death: Death) -> CrashPlan:
        app = self.kit.app
        clear_in_transaction(app)
        yield from _call(self.reset)
        with app.transaction() as tx:
            id = app.start(tx, self.target, self.input).id
        was_killed = False
        for _ in range(ROUNDS_MAX):
            yield death
            if death.boundary is not None and not was_killed:
                was_killed = True
                self._recover()
                continue
            chain = app.chains.get(id)
            if chain.state not in ("blocked", "pending", "running"):
                return Outcome(chain.state, chain.output, (yield from _call(self.rows)))
            self._let_go_on()
        raise AssertionError(f"the function has not ended after {ROUNDS_MAX} rounds")

    def _recover(self) -> None:
        """Take back at once what the dead worker held: no time passes that the undisturbed run does not have."""
        database = self.kit.app.database
        later = self.clock.now() + LEASE_OVER_US
        reaped = database.run(at(_reap(database.store), later))
        with self.kit.app.transaction() as tx:
            for each in reaped:
                self.kit.app.jobs.trigger(tx, each)

    def _let_go_on(self) -> None:
        """Send what is waited for, or move the clock to the first time at which a job is due."""
        app = self.kit.app
        waits = app.database.read(app.database.store.signals.waits(WAITS_MAX))
        wanted = [each for each in waits if each.signal in self.signals]
        for wait in wanted:
            self.kit.signal(
                wait.signal, key=wait.signal_key or None, data=self.signals[wait.signal]
            )
        if wanted:
            return
        due = [each.available_at for each in app.jobs.list("state:pending", limit=WAITS_MAX)]
        times = [to_instant(each) for each in due if each is not None]
        if not times:
            missing = ", ".join(f"{each.signal} {each.signal_key}".strip() for each in waits)
            raise AssertionError(
                f"the function waits for {missing or 'something'} without a timeout:"
                " give the data of the signal in signals={…}"
            )
        self.clock.move_to(min(times))


CrashPlan: TypeAlias = Generator[Death | Awaitable[Any], Any, Any]
"""Yields a death to run jobs with until nothing is due, or what an async test's callables returned."""


def _call(function: Callable[[], Any] | None) -> CrashPlan:
    value = None if function is None else function()
    return (yield value) if inspect.isawaitable(value) else value


def _reap(store: Store) -> Op[list[str]]:
    report = yield from reap_leases(store)
    return [each.id for each in report.page.reaped if each.state == "pending"]


def _describe(boundary: str, outcome: Outcome, undisturbed: Outcome) -> str:
    pairs = zip(Outcome._fields, outcome, undisturbed, strict=True)
    lines = [
        f"  {name}: {mine!r} instead of {theirs!r}"
        for name, mine, theirs in pairs
        if mine != theirs
    ]
    return "\n".join([f"a worker that died {boundary} made a difference:", *lines])
