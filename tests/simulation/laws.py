"""What must be true of every run, whatever went wrong in it. No law knows of a planted defect.

The laws of rows are those of `holdfast verify`. The others hold what the database says against what handlers and
producers saw: nothing acknowledged is lost, nothing takes effect twice, fences grow, and nothing happens twice without
a fault that explains it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from holdfast_verify.laws import check_laws
from tests.simulation import workload
from tests.simulation.history import Begun, Block, Outcome, Trouble
from tests.simulation.plan import PlannedJob
from tests.simulation.process import SHUTDOWN_S
from tests.simulation.world import EPOCH_US
from tests.support.laws import breaches_of

if TYPE_CHECKING:
    from tests.simulation.run import Simulation

ENDS = frozenset({"job_completed", "job_continued", "job_failed"})
POISON = 3
"""So many crashes of its workers make a job a dead letter."""
LATE_S = 0.005
"""What the notes of handlers and the database's clock may differ by."""


class Row(msgspec.Struct, frozen=True):
    """A job as the database has it at the end."""

    id: str
    chain_id: str
    chain_index: int
    type: str
    state: str
    attempt: int
    crashes: int
    fence: int
    output: str | None
    error: str | None
    created_at: int
    finished_at: int | None


_ROWS = """
select v.id, v.chain_id, v.chain_index, v.type, v.state, v.attempt, v.crashes, v.fence, v.output, v.error,
       j.created_at, o.finished_at
  from holdfast_jobs v join holdfast_job j on j.id = v.id left join holdfast_outcome o on o.job_id = v.id
 order by v.chain_id, v.chain_index
"""


class Findings:
    """What is known at the end of a run."""

    def __init__(self, simulation: "Simulation", is_drained: bool) -> None:
        self.plan = simulation.plan
        self.history = simulation.history
        self.is_drained = is_drained
        self.defects = [
            *simulation.defects,
            *simulation.world.spins,
            *(f"{each.name}: {error!r}" for each in simulation.loops for error in each.errors),
            *(
                f"{process.name}: {error!r}"
                for process in simulation.processes
                for error in process.errors
            ),
        ]
        self.verdicts = simulation.server.run(check_laws())
        self.rows = {row[0]: Row(*row) for row in simulation.server.query(_ROWS)}
        query = simulation.server.query
        self.logged = query("select id, key, line, place, data from holdfast_log")
        self.taken = query("select id, key, number from taken order by rowid")
        self.setbacks = query("select line, old, new from setback")
        self.positions = query("select line, position from holdfast_log_position")
        self.steps = query(
            "select job_id, name, fence, output from holdfast_step where kind = 'step' and state = 'done'"
        )
        self.effects: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for job_id, fence, name in simulation.server.query(
            "select job_id, fence, name from effect"
        ):
            self.effects[job_id].append((fence, name))

    @cached_property
    def chains(self) -> dict[str, list[Row]]:
        """The jobs of each chain, in their order."""
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.rows.values():
            found[row.chain_id].append(row)
        return found

    @cached_property
    def ends(self) -> dict[str, list[Outcome]]:
        """The ends that workers were told are recorded."""
        found: defaultdict[str, list[Outcome]] = defaultdict(list)
        for each in self.history.outcomes:
            if each.name in ENDS:
                found[each.job_id].append(each)
        return found

    def troubles(self, process: str, begins: float, ends: float) -> list[Trouble]:
        """The faults that a process met in a time, those of the server included."""
        return [
            each
            for each in self.history.troubles
            if each.process in ("", process)
            and each.kind != "deaf"
            and each.begins_at <= ends
            and each.ends_at >= begins
        ]

    def server_crashed(self, before: float) -> bool:
        """Whether the server may have forgotten claims by then."""
        return any(
            each.kind == "crash" and each.begins_at <= before for each in self.history.troubles
        )


def everything_ends(found: Findings) -> Iterator[str]:
    """What was started ends, once nothing goes wrong any more."""
    if not found.is_drained:
        left = [row for row in found.rows.values() if row.finished_at is None]
        yield (
            ", ".join(f"{row.type} {row.id[-6:]} is {row.state}" for row in left[:5])
            or "starts or events"
        )


def acknowledged_is_there(found: Findings) -> Iterator[str]:
    """A start that was confirmed is in the database, and has ended as planned."""
    for job in found.plan.jobs:
        id = found.history.acknowledged.get(job.number)
        if id is None:
            continue
        if id not in found.rows:
            yield f"{job.type} {id[-6:]} was acknowledged and is gone"
            continue
        chain = found.chains[id]
        last = chain[-1]
        if last.finished_at is None:
            continue
        if last.state not in _wanted_states(job, chain):
            yield f"{job.type} {id[-6:]} is {last.state}: {(last.error or '')[:80]}"
        elif last.state == "completed":
            yield from _whole(job, chain)


def _wanted_states(job: PlannedJob, chain: Sequence[Row]) -> set[str]:
    wanted = {"failed"} if job.type == "doomed" else {"completed"}
    if job.cancel_after:
        wanted.add("cancelled")
    if any(row.crashes >= POISON for row in chain):
        wanted.add("failed")
    return wanted


def _whole(job: PlannedJob, chain: Sequence[Row]) -> Iterator[str]:
    """Whether a chain that has completed has all its jobs, and a join saw all parts."""
    name = f"{job.type} {chain[0].id[-6:]}"
    length = {"chain": job.links + 1, "spread": 2}.get(job.type, 1)
    if len(chain) != length:
        yield f"{name} has {len(chain)} jobs instead of {length}"
    if job.type in ("join", "spread"):
        output = msgspec.json.decode(chain[-1].output or "null")
        if output != list(range(job.parts)):
            yield f"{name} saw {output} of {job.parts} parts"


def undone_leaves_nothing(found: Findings) -> Iterator[str]:
    """A start whose transaction was rolled back never was."""
    for id in sorted(found.history.undone):
        if id in found.rows or id in found.history.begun:
            yield f"{id[-6:]} was rolled back and is there"


def fences_grow(found: Findings) -> Iterator[str]:
    """Every claim has a higher fence than all before it, and every attempt that began counts."""
    for earlier, later in _pairs(found):
        if found.server_crashed(later.at):
            continue
        if later.fence <= earlier.fence:
            yield f"{_name(later)}: fence {later.fence} after {earlier.fence}"
        if later.type == "function":
            # What was recorded counts as progress, after which attempts are counted anew.
            continue
        if later.attempt < earlier.attempt:
            yield f"{_name(later)}: attempt {later.attempt} after {earlier.attempt}"
        if earlier.how in ("runs", "Flaw") and later.attempt <= earlier.attempt:
            yield f"{_name(later)}: attempt {later.attempt} twice, though the first one {earlier.how}"


def no_repetition_without_cause(found: Findings) -> Iterator[str]:
    """A handler is called again only after it failed, or after a fault that its process met."""
    for earlier, later in _pairs(found):
        is_over = earlier.ended_at is not None and earlier.ended_at <= later.at
        if is_over and (earlier.how == "Flaw" or earlier.type == "function"):
            continue
        causes = found.troubles(earlier.process, earlier.at - 1, later.at)
        if not any(_explains(each, earlier, later) for each in causes):
            yield f"{_name(later)}: called again at {later.process}, though {earlier.process} met no fault"


def handlers_do_not_overlap(found: Findings) -> Iterator[str]:
    """A handler has ended when the next of its job begins, unless its process slept or died, or its claim was lost."""
    for earlier, later in _pairs(found):
        if earlier.ended_at is not None and earlier.ended_at <= later.at:
            continue
        met = {each.kind for each in found.troubles(earlier.process, earlier.at, later.at)}
        if not met & {"pause", "kill"} and not found.server_crashed(later.at):
            yield f"{_name(later)}: called at {later.process}, though {earlier.process} still runs it"


def one_end(found: Findings) -> Iterator[str]:
    """A job ends once, by the attempt with the highest fence, and no handler is called after that."""
    for job_id, ends in found.ends.items():
        row = found.rows.get(job_id)
        text = f"{row.type if row else '?'} {job_id[-6:]}"
        if len({each.fence for each in ends}) > 1:
            yield f"{text} has ended {len(ends)} times"
        if row is None:
            yield f"{text} has ended and is gone"
            continue
        if row.finished_at is None or row.fence != ends[0].fence:
            yield f"{text} ended with fence {ends[0].fence}; the database says {row.state}, {row.fence}"
        for each in found.history.begun.get(job_id, ()):
            if found.server_crashed(each.at):
                continue
            if each.fence > row.fence and row.state != "cancelled":
                yield f"{text} ended with fence {row.fence}, below {each.fence}, which was claimed"
            if each.at > ends[0].at:
                yield f"{text} was called at {each.process} after its end"


def one_effect(found: Findings) -> Iterator[str]:
    """What a handler writes in the transaction that completes it is there once if it has completed, and else not."""
    for row in found.rows.values():
        if row.type not in ("paid", "staged", "function"):
            continue
        paid = [fence for fence, name in found.effects[row.id] if name == "paid"]
        most = 1 if row.state == "completed" or row.type == "function" else 0
        least = 1 if row.state == "completed" else 0
        if not least <= len(paid) <= most:
            yield f"{row.type} {row.id[-6:]} is {row.state} and has {len(paid)} effects"
        if paid and row.type != "function" and paid[0] != row.fence:
            yield f"{row.type} {row.id[-6:]} has the effect of fence {paid[0]}, not of {row.fence}"


def steps_are_kept(found: Findings) -> Iterator[str]:
    """A step whose result is recorded is not called again; before that, only after a fault."""
    calls = Counter((each.job_id, each.name) for each in found.history.steps)
    for (job_id, name), count in calls.items():
        begun = found.history.begun[job_id]
        if count > 1 and not any(
            found.troubles(each.process, each.at - 1, each.at + 3) for each in begun
        ):
            yield f"step {name} of {job_id[-6:]} was called {count} times without a fault"


def steps_bear_their_fence(found: Findings) -> Iterator[str]:
    """What a step returned or wrote is recorded under the claim that it ran in, never under a later one."""
    for job_id, name, fence, output in found.steps:
        if name == "first" and output is not None:
            called = found.history.steps[msgspec.json.decode(output) - 1].fence
        elif name == "pay":
            called = next((each for each, effect in found.effects[job_id] if effect == "paid"), 0)
        else:
            continue
        if called != fence:
            yield f"step {name} of {job_id[-6:]} ran in claim {called} and is recorded under {fence}"


def slots_run_once(found: Findings) -> Iterator[str]:
    """A slot of a cycle runs again only after it failed, or after a fault; and one runs at a time."""
    for key, runs in found.history.slots.items():
        for earlier, later in pairwise(runs):
            if earlier.how != "returned" and earlier.ended_at is not None:
                continue
            causes = found.troubles(earlier.process, earlier.at - 1, later.at)
            if not any(_explains(each, earlier, later) for each in causes):
                yield f"{key} runs again at {later.process}, though {earlier.process} met no fault"
            if later.attempt <= earlier.attempt and not found.server_crashed(later.at):
                yield f"{key}: run {later.attempt} after {earlier.attempt}"
    every = sorted((each for all in found.history.slots.values() for each in all), key=_began)
    sound = [each for each in every if _is_sound(found, each)]
    yield from _crowded("sweep", sound, 1)


def limits_hold(found: Findings) -> Iterator[str]:
    """No more handlers run at once than allowed; those that met a fault or were cancelled may go on for a moment."""
    running = [
        each
        for each in _all_begun(found, "limited")
        if _is_sound(found, each) and found.rows[each.job_id].state != "cancelled"
    ]
    yield from _crowded("all", running, workload.ALL_LIMITED)
    for key in sorted({each.key for each in running}):
        mine = [each for each in running if each.key == key]
        yield from _crowded(f"key {key}", mine, workload.PER_KEY)


def rates_hold(found: Findings) -> Iterator[str]:
    """No more are claimed in a period than allowed; a fence is the time of its claim in milliseconds."""
    claimed = sorted(each.fence for each in _all_begun(found, "rated"))
    for first, later in zip(claimed, claimed[workload.RATE :], strict=False):
        if later - first < workload.RATE_S * 1000 - 1 and not found.server_crashed(math.inf):
            yield f"{workload.RATE + 1} claims within {later - first} ms"


def order_holds(found: Findings) -> Iterator[str]:
    """Of an ordered key, nothing begins before the end of what came before it."""
    queues: defaultdict[str, list[Row]] = defaultdict(list)
    keys = {found.history.acknowledged.get(job.number): job.key for job in found.plan.jobs}
    for row in found.rows.values():
        if row.type == "ordered":
            queues[keys.get(row.id, "?")].append(row)
    for key, rows in queues.items():
        rows.sort(key=lambda row: (row.created_at, row.id))
        for earlier, later in pairwise(rows):
            begun = found.history.begun.get(later.id)
            if not begun or earlier.finished_at is None or earlier.created_at == later.created_at:
                continue
            began_us = EPOCH_US + (begun[0].at - 1_000.0) * 1_000_000
            if began_us + LATE_S * 1_000_000 < earlier.finished_at:
                yield f"{later.id[-6:]} of key {key} began before the end of {earlier.id[-6:]}"


def events_count_once(found: Findings) -> Iterator[str]:
    """What was published is in the log, and has been taken once by its consumer; what was rolled back never was."""
    numbers = {msgspec.json.decode(data)["number"]: id for id, _, _, _, data in found.logged}
    for each in sorted(found.history.published - numbers.keys()):
        yield f"event {each} was published and is gone"
    for each in sorted(found.history.unpublished & numbers.keys()):
        yield f"event {each} was rolled back and is there"
    counts = Counter(id for id, _, _ in found.taken)
    for number, id in sorted(numbers.items()):
        if counts.pop(id, 0) != 1 and found.is_drained:
            yield f"event {number}, {id[-6:]}, was not taken once"
    for id in counts:
        yield f"{id[-6:]} was taken and is not in the log"


def events_keep_their_order(found: Findings) -> Iterator[str]:
    """The events of a key are taken in the order of the log, also those that were parked and the ones behind them."""
    places = {id: place for id, _, _, place, _ in found.logged}
    last: dict[str, int] = {}
    for id, key, number in found.taken:
        place = places.get(id, 0)
        if place <= last.get(key, 0):
            yield f"event {number} of key {key} was taken after a later one"
        last[key] = max(place, last.get(key, 0))


def positions_grow(found: Findings) -> Iterator[str]:
    """A consumer's position never goes back, and is never beyond the log."""
    for line, old, new in found.setbacks:
        yield f"line {line} went back from {old} to {new}"
    heads = {line: place for _, _, line, place, _ in found.logged}
    for line, position in found.positions:
        if position > max([place for _, _, at, place, _ in found.logged if at == line], default=0):
            yield f"line {line} is at {position}, beyond {heads.get(line, 0)}"


def no_event_again_without_cause(found: Findings) -> Iterator[str]:
    """A consumer is called again with an event only after it failed, or after a fault that its process met."""
    last: dict[str, Block] = {}
    for block in found.history.blocks:
        for id in block.events:
            earlier = last.get(id)
            last[id] = block
            if earlier is None or earlier.how == "Flaw":
                continue
            if not found.troubles(earlier.process, earlier.at - 1, block.at):
                yield f"event {id[-6:]}: taken again at {block.process}, though {earlier.process} met no fault"


def rows_keep_the_laws(found: Findings) -> Iterator[str]:
    """What `holdfast verify` checks."""
    yield from breaches_of(found.verdicts)


def no_defects(found: Findings) -> Iterator[str]:
    """No loop of a worker ends by an error or spins, and a worker ends when it is asked to."""
    yield from found.defects


Law = Callable[[Findings], Iterator[str]]

LAWS: Sequence[Law] = (
    everything_ends,
    acknowledged_is_there,
    undone_leaves_nothing,
    fences_grow,
    no_repetition_without_cause,
    handlers_do_not_overlap,
    one_end,
    one_effect,
    steps_are_kept,
    steps_bear_their_fence,
    slots_run_once,
    limits_hold,
    rates_hold,
    order_holds,
    events_count_once,
    events_keep_their_order,
    positions_grow,
    no_event_again_without_cause,
    rows_keep_the_laws,
    no_defects,
)


def check(simulation: "Simulation", is_drained: bool) -> list[str]:
    """Return what breaks a law, in words, the law's name first."""
    found = Findings(simulation, is_drained)
    return [f"{law.__name__}: {text}" for law in LAWS for text in law(found)]


def _pairs(found: Findings) -> Iterator[tuple[Begun, Begun]]:
    for begun in found.history.begun.values():
        yield from pairwise(begun)


def _all_begun(found: Findings, type: str) -> list[Begun]:
    return [each for all in found.history.begun.values() for each in all if each.type == type]


def _is_sound(found: Findings, begun: Begun) -> bool:
    ends = begun.ended_at if begun.ended_at is not None else begun.at + 60
    return begun.how != "runs" and not found.troubles(begun.process, begun.at - 1, ends)


def _explains(trouble: Trouble, earlier: Begun, later: Begun) -> bool:
    """Whether a fault can be why a handler was called again; a drain lets handlers end, and interrupts them late."""
    if trouble.kind != "stop":
        return True
    ended_at = earlier.ended_at
    if ended_at is None or ended_at > later.at or earlier.how == "returned":
        return False
    return ended_at >= trouble.begins_at + SHUTDOWN_S * 0.75 - 0.05


def _crowded(what: str, begun: Sequence[Begun], allowed: int) -> Iterator[str]:
    changes: list[tuple[float, int]] = []
    for each in begun:
        changes += [(each.at, 1), (each.ended_at or each.at, -1)]
    running = 0
    for at, change in sorted(changes):
        running += change
        if running > allowed:
            yield f"{running} run at once of {what}, which allows {allowed}, at {at - 1000:.3f}"
            return


def _began(begun: Begun) -> float:
    return begun.at


def _name(begun: Begun) -> str:
    return f"{begun.type} {begun.job_id[-6:]}"
