"""What everyone saw, noted outside of the database: starts, handlers, outcomes and faults."""

from collections import Counter, defaultdict
from typing import Any

import msgspec

from holdfast.core.events import Event
from tests.simulation.plan import PlannedEvent
from tests.simulation.world import World

OUTCOMES = frozenset(
    {"job_completed", "job_continued", "job_failed", "job_retried", "job_snoozed", "job_parked"}
)
"""Events after which an attempt's end is in the database."""


class Begun(msgspec.Struct):
    """A handler that was called."""

    job_id: str
    type: str
    attempt: int
    fence: int
    process: str
    at: float
    key: str = ""
    ended_at: float | None = None
    how: str = "runs"


class Outcome(msgspec.Struct, frozen=True):
    """An end of an attempt that a worker was told is in the database."""

    name: str
    job_id: str
    fence: int
    process: str
    at: float


class StepCall(msgspec.Struct, frozen=True):
    """A step that was called, by the attempt with this fence."""

    job_id: str
    name: str
    fence: int


class Block(msgspec.Struct):
    """A call of a consumer, and how it ended."""

    events: list[str]
    process: str
    at: float
    how: str = "runs"


class Trouble(msgspec.Struct):
    """A fault: whom it met, and when."""

    number: int
    kind: str
    process: str
    begins_at: float
    ends_at: float


class History:
    """The notes of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acknowledged: dict[int, str] = {}
        """The chains of the plan's jobs whose start was confirmed."""
        self.undone: set[str] = set()
        """Those whose transaction was rolled back on purpose."""
        self.begun: defaultdict[str, list[Begun]] = defaultdict(list)
        self.outcomes: list[Outcome] = []
        self.troubles: list[Trouble] = []
        self.steps: list[StepCall] = []
        """Each returns its place in this list, counted from 1."""
        self.slots: defaultdict[str, list[Begun]] = defaultdict(list)
        """The runs of each slot of a cycle."""
        self.published: set[int] = set()
        """The planned events whose publication was confirmed."""
        self.unpublished: set[int] = set()
        """Those whose transaction was rolled back on purpose."""
        self.blocks: list[Block] = []
        self.is_mended = False
        """Whether what made events fail is mended, so that an operator retries those that were parked."""
        self._failures: Counter[int] = Counter()
        self.refused = 0
        self.events: dict[str, int] = {}

    def begin(self, job: Any, process: str, key: str = "") -> Begun:
        """Note that a handler was called."""
        begun = Begun(
            str(job.id), job.type, job.attempt, job.fence, process, self.world.now, str(key)
        )
        self.begun[begun.job_id].append(begun)
        self.world.note(
            f"{process} begins {begun.type} {begun.job_id[-6:]} attempt {begun.attempt} fence {begun.fence}"
        )
        return begun

    def begin_slot(self, run: Any, process: str) -> Begun:
        """Note that a slot of a cycle runs."""
        begun = Begun(run.key, run.name, run.attempt, 0, process, self.world.now)
        self.slots[run.key].append(begun)
        self.world.note(f"{process} begins {run.key} run {run.attempt}")
        return begun

    def begin_block(self, process: str, events: list[str]) -> Block:
        """Note that a consumer was called with these events."""
        block = Block(events, process, self.world.now)
        self.blocks.append(block)
        self.world.note(f"{process} takes {' '.join(each[-6:] for each in events)}")
        return block

    def fails_again(self, event: PlannedEvent) -> bool:
        """Say whether a consumer is to fail at an event, and count it."""
        if self.is_mended or self._failures[event.number] >= event.fails:
            return False
        self._failures[event.number] += 1
        return True

    def trouble(self, kind: str, process: str, seconds: float) -> Trouble:
        """Note a fault."""
        now = self.world.now
        made = Trouble(len(self.troubles) + 1, kind, process, now, now + seconds)
        self.troubles.append(made)
        self.world.note(f"fault {made.number}: {kind} {process} for {seconds:.3f} s")
        return made

    def observer(self, process: str) -> "ProcessObserver":
        """Make what a process tells its events to."""
        return ProcessObserver(self, process)


class ProcessObserver:
    """The observer of one process."""

    def __init__(self, history: History, process: str) -> None:
        self._history = history
        self._process = process

    def observe(self, event: Event) -> None:
        """Note an event."""
        history, name, fields = self._history, event.name, event.fields
        history.events[name] = history.events.get(name, 0) + 1
        if name == "write_refused":
            history.refused += 1
        if name in OUTCOMES:
            job_id, fence = str(fields["job_id"]), int(fields["fence"])
            now = history.world.now
            history.outcomes.append(Outcome(name, job_id, fence, self._process, now))
            error = (str(fields.get("error") or "").splitlines() or [""])[0]
            history.world.note(f"{self._process} {name} {job_id[-6:]} fence {fence} {error}")
        elif name != "worker_summary":
            subject = str(fields.get("job_id", ""))[-6:]
            history.world.note(f"{self._process} {name} {subject}")
