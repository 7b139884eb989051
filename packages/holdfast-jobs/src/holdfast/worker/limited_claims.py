"""Looks at the gates of limited types: when each is due, how far it reads, and what a claim of it asks for.

Every type has its own time for the next look: at once after a hint or while more is due, otherwise when the next wakeup
is. A look begins behind the wakeups that were answered before; a full look begins at the first, and finds those of
transactions that committed late.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.core.flow import LONGEST_TURN, Flow
from holdfast.core.gates import (
    BatchRule,
    GateRule,
    LimitedAnswer,
    LimitedClaim,
    LinedUp,
    UngatedJob,
    WakeupMark,
)
from holdfast.core.records import DEFAULT_PRIORITY, PRIORITIES, ClaimCommit, LeaseClass
from holdfast.core.registry import JobType
from holdfast.core.sealing import Sealer, open_input
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.options import PollBackoff, WorkerOptions

FULL_LOOK_MAX_S = 5.0
COST_FACTOR = 20
"""Full looks take at most one part in so many of the time."""
BUSY_MIN_S, BUSY_MAX_S = 0.004, 0.25
"""When to look again where another claimer has the gates."""
HELD_BACK_S = 0.5
"""When to look again where a limit of several types is full: what ends in another application sends no hint here."""
SMALLEST_WINDOW, LARGEST_WINDOW = 100, 20_000
SPARE_GATES = 6
MOST_GATES = 500
"""A look at so many takes tens of milliseconds, and others cannot look at them meanwhile."""
FEWEST_PER_GATE = 0.5
"""A look reads two wakeups for each job it wants: it reaches no further where most lines turn out to be empty."""
LOOKED_AT_FOR_BATCHES = 100
"""So many lines that wait for more jobs may be looked at besides those that a claim can take."""
LINE_UP_S = 0.25
LINED_UP_AT_ONCE = 500
UNLIMITED_CHECK_S, SERVED_CHECK_S, HINTED_CHECK_S = 60.0, 5.0, 1.0
"""How often to ask for gates of types that the code does not limit, while there are any; more often where some were
found, and where a hint found nothing."""


@dataclass(slots=True)
class TypeLooks:
    """When to look at the gates of a type, and from which wakeup on."""

    flow: Flow | None
    backoff: PollBackoff
    next_at: float = -math.inf
    full_at: float = -math.inf
    cost: float = 0.0
    lined_up_at: float = -math.inf
    window: int = SMALLEST_WINDOW
    per_gate: float = 1.0
    busy_s: float = BUSY_MIN_S
    is_full_look: bool = True
    is_idle: bool = False
    has_unlined: bool = False
    marks: dict[int, WakeupMark] = field(default_factory=dict)

    def gates_for(self, limit: int) -> int:
        """How many gates to look at for so many jobs."""
        return min(math.ceil(limit / self.per_gate) + SPARE_GATES, MOST_GATES)

    @property
    def full_due(self) -> float:
        """When the next full look may be."""
        return self.full_at + min(FULL_LOOK_MAX_S, COST_FACTOR * self.cost)


class LimitedClaims:
    """The limited types of a worker. On the loop."""

    def __init__(self, types: Mapping[str, JobType], options: WorkerOptions) -> None:
        self._options = options
        self._looks = {
            name: TypeLooks(each.flow, PollBackoff(options))
            for name, each in types.items()
            if each.flow is not None
        }
        self._sealers = {name: each.sealer for name, each in types.items()}
        self.plain = {name: each for name, each in types.items() if each.flow is None}
        self._has_gates = False
        self._checked_at = -math.inf

    def __bool__(self) -> bool:
        return bool(self._looks)

    def __contains__(self, type: str) -> bool:
        """Whether there are gates of a type to look at."""
        return type in self._looks

    def hint(self, type: str | None) -> None:
        """Look soon: at the gates of a type, or of all."""
        for name in self._looks if type is None else (type,):
            if name in self._looks:
                self._looks[name].next_at = -math.inf

    def due(self, now: float, all_of_them: bool = False) -> Iterator[str]:
        """Yield the types whose gates are to be looked at; the one that waited longest is first."""
        for name, each in sorted(self._looks.items(), key=lambda item: item[1].next_at):
            if all_of_them or each.next_at <= now:
                yield name

    def next_at(self, has_room: Callable[[str], bool]) -> float:
        """When the next look at a type is due that there is room for."""
        for name, each in sorted(self._looks.items(), key=lambda item: item[1].next_at):
            if has_room(name):
                return each.next_at
        return math.inf

    @property
    def are_idle(self) -> bool:
        """Whether the last look at each type found nothing that may start now."""
        return all(each.is_idle for each in self._looks.values())

    def has_rate(self, type: str) -> bool:
        """Whether the starts of a type are counted, so that none may wait for a slot."""
        flow = self._looks[type].flow
        return flow is not None and flow.has_rate

    def claim(
        self,
        type: str,
        limit: int,
        worker: str,
        lease: LeaseClass,
        allow_crashed: bool,
        commit: ClaimCommit,
        now: float,
        is_last: bool = False,
    ) -> LimitedClaim:
        """Make the claim of the next look; the last one of a worker that ends when nothing is left is full."""
        looks = self._looks[type]
        looks.is_full_look = is_last or now >= looks.full_due
        if looks.is_full_look:
            marks = tuple(WakeupMark(priority) for priority in PRIORITIES)
        else:
            marks = tuple(looks.marks[priority] for priority in sorted(looks.marks))
        flow = looks.flow
        turn = flow.turn if flow else LONGEST_TURN
        batch = flow.batch if flow else None
        calls = max(1, limit // batch.size) if batch else 1
        if batch is not None and is_last:
            # Nothing more is expected by a worker that ends when nothing is left.
            batch = BatchRule(batch.size)
        return LimitedClaim(
            worker=worker,
            type=type,
            limit=limit,
            lease=lease,
            line=flow.line if flow else GateRule(type),
            shared=flow.shared if flow else (),
            ordered=flow is not None and flow.ordered is not None,
            holds=flow is not None and flow.ordered == "hold",
            weights=flow.weight_by_gate() if flow else {},
            marks=marks,
            window=max(looks.window, 2 * limit),
            gates=looks.gates_for(limit)
            if batch is None
            else math.ceil(limit / turn) + LOOKED_AT_FOR_BATCHES,
            allow_crashed=allow_crashed,
            commit=commit,
            turn=turn,
            batch=batch,
            calls=calls,
        )

    def note(
        self,
        claim: LimitedClaim,
        answer: LimitedAnswer,
        sent_at: float,
        now: float,
        hints_alive: bool,
        random: float,
    ) -> None:
        """Note what a look brought, and when the next one is due."""
        looks = self._looks[claim.type]
        self._move_marks(looks, answer)
        if looks.is_full_look:
            looks.full_at, looks.cost = now, now - sent_at
        was_cut = answer.called >= claim.window
        if was_cut and answer.gates < claim.gates:
            looks.window = min(LARGEST_WINDOW, 4 * looks.window)
        elif not was_cut:
            looks.window = max(SMALLEST_WINDOW, looks.window // 2)
        _count_per_gate(looks, claim, answer)
        has_more = looks.has_unlined or bool(answer.jobs and answer.left > 0)
        was_cut = was_cut or answer.gates > claim.gates
        has_more = has_more or (was_cut and answer.left < answer.called)
        looks.backoff.hints_alive = hints_alive
        looks.backoff.note_found(len(answer.jobs))
        poll_s = looks.backoff.poll_s(random)
        is_busy = answer.busy or (answer.left > 0 and not answer.jobs)
        looks.is_idle = not (answer.jobs or has_more or is_busy) and looks.is_full_look
        looks.next_at = now + self._pause(looks, answer, has_more, is_busy, poll_s, random)
        if not looks.is_full_look:
            looks.next_at = min(looks.next_at, max(now, looks.full_due))

    def _pause(
        self,
        looks: TypeLooks,
        answer: LimitedAnswer,
        has_more: bool,
        is_busy: bool,
        poll_s: float,
        random: float,
    ) -> float:
        if has_more:
            looks.busy_s = BUSY_MIN_S
            return 0.0
        wait = poll_s if answer.next_us is None else min(poll_s, answer.next_us / 1_000_000)
        if is_busy:
            looks.busy_s = min(BUSY_MAX_S, 2 * looks.busy_s)
            return min(wait, looks.busy_s * (0.5 + random))
        looks.busy_s = BUSY_MIN_S
        if answer.held_back:
            return min(wait, HELD_BACK_S * (0.5 + random))
        return wait

    def _move_marks(self, looks: TypeLooks, answer: LimitedAnswer) -> None:
        if looks.is_full_look:
            looks.marks = {DEFAULT_PRIORITY: WakeupMark(DEFAULT_PRIORITY)}
        for mark in answer.marks:
            if mark.at or mark.priority in looks.marks:
                looks.marks[mark.priority] = mark

    def is_to_line_up(self, type: str, now: float) -> bool:
        """Whether to look for jobs of a type that wait at no gate."""
        looks = self._looks[type]
        is_due = now >= max(looks.full_due, looks.lined_up_at + LINE_UP_S)
        if looks.flow is None or not (looks.has_unlined or is_due):
            return False
        looks.lined_up_at = now
        return True

    def line_up(self, store: Store, type: str) -> Op[int]:
        """Give jobs that were started without knowing of the limit their places; return how many there were."""
        looks = self._looks[type]
        jobs = yield from store.limits.unlined(type, LINED_UP_AT_ONCE)
        looks.has_unlined = False
        if not jobs or looks.flow is None:
            return 0
        sealer = self._sealers[type]
        moves = [
            LinedUp(each.id, _gate_of(looks.flow, each, sealer), each.available_at) for each in jobs
        ]
        moved = yield from store.limits.line_up(moves, looks.flow.ordered is not None)
        looks.has_unlined = moved > 0 and len(jobs) == LINED_UP_AT_ONCE
        return moved

    def note_gates(self, has_gates: bool) -> bool:
        """Note whether the database has any gate; return whether types without limits are to be checked for that."""
        is_new = has_gates and not self._has_gates and bool(self.plain)
        self._has_gates = has_gates
        return is_new

    def is_to_check(self, now: float, was_hinted: bool) -> bool:
        """Whether to ask which types have jobs at gates though the code sets no limit any more."""
        if not self.plain or not self._has_gates:
            return False
        interval = SERVED_CHECK_S if self._served_unlimited else UNLIMITED_CHECK_S
        if now < self._checked_at + (HINTED_CHECK_S if was_hinted else interval):
            return False
        self._checked_at = now
        return True

    @property
    def _served_unlimited(self) -> list[str]:
        return [name for name, each in self._looks.items() if each.flow is None]

    def serve_unlimited(self, lined: set[str]) -> None:
        """Look at the gates of these types too, until they are empty or left to workers that limit them."""
        for name in self._served_unlimited:
            if name not in lined:
                del self._looks[name]
        for name in lined:
            looks = TypeLooks(None, PollBackoff(self._options))
            self._looks.setdefault(name, looks).next_at = -math.inf


def _count_per_gate(looks: TypeLooks, claim: LimitedClaim, answer: LimitedAnswer) -> None:
    """Note how many jobs a gate lets through, so that the next look is at as many gates as fill its claim."""
    if not answer.gates:
        return
    looked = min(claim.gates, answer.gates)
    if len(answer.jobs) >= claim.limit:
        looked = len({job.gate for job in answer.jobs})
    per_gate = (looks.per_gate + len(answer.jobs) / looked) / 2
    looks.per_gate = min(max(per_gate, FEWEST_PER_GATE), claim.turn)


def _gate_of(flow: Flow, job: UngatedJob, sealer: Sealer | None) -> str:
    """Where a job waits; one whose input has no usable key waits where no limit of keys holds."""
    try:
        return flow.gate_of(open_input(sealer, job.input, job.id, flow.type))
    except Exception:
        return f"{flow.type}#"
