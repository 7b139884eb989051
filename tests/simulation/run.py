"""One run: the plan's jobs and faults, then quiet until everything has ended, then the laws."""

import asyncio
import atexit
import gc
import hashlib
import math
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count, groupby
from unittest import mock
from uuid import UUID

import msgspec

from holdfast import Start
from holdfast.core.errors import HoldfastError
from holdfast.notify.base import Hint
from holdfast.storage import id_generator
from holdfast.worker import completer, resolve_outcome
from holdfast.worker.attempt import Attempt
from holdfast.worker.completer import PendingOutcome
from tests.simulation import consumers, workload
from tests.simulation.history import History
from tests.simulation.laws import check
from tests.simulation.plan import Plan, PlannedEvent, PlannedFault, PlannedJob
from tests.simulation.process import Hints, Process
from tests.simulation.server import LOCK_WAIT_S, LOST, Server, SimulatedDatabase
from tests.simulation.world import SimulatedLoop, World

QUIET_S = 120.0
"""By then everything must have ended that was started, once nothing goes wrong any more."""
SIGNAL_S = 0.5
LATE_SIGNAL_S = 1.0
"""Every other function waits for its signal; the others find it there."""
MENDED_S = 1.0
POSTPONED_S = 0.2
_LEFT = """
select exists (select 1 from holdfast_queue)
    or exists (select 1 from holdfast_log_parked)
    or exists (select 1 from holdfast_log_position p join holdfast_log_line n on n.line = p.line
                where p.position <> n.place)
"""
INPUT = ("number", "ms", "fails", "links", "key", "parts")
COLLECTED_EVERY = 4
"""So many runs are left behind together: what they have in common is passed over once."""
WEATHER = ("cut", "lost_answers", "swallow", "slow")


class Result(msgspec.Struct, frozen=True):
    """How a run ended."""

    seed: int
    breaches: list[str]
    digest: str
    jobs: int
    faults: int
    begun: int
    refused: int
    turns: int
    trace: list[str]

    def without_trace(self) -> "Result":
        """The same without what happened."""
        return msgspec.structs.replace(self, trace=[])


@contextmanager
def ids_of(world: World) -> Iterator[None]:
    """Have ids made from the seed and the world's clock."""
    maker, draw = id_generator._maker, random.Random(f"ids {world.seed}")
    kept = maker._clock_ms, maker._random_bytes
    maker._ms, maker._counter = -1, 0
    maker._clock_ms = lambda: world.instant // 1_000
    maker._random_bytes = draw.randbytes
    try:
        yield
    finally:
        maker._clock_ms, maker._random_bytes = kept
        maker._ms, maker._counter = -1, 0


@contextmanager
def order_of_sets() -> Iterator[None]:
    """Have the order of a set of attempts follow from their jobs, not from where they are in memory."""
    with mock.patch.object(
        Attempt, "__hash__", lambda each: hash((each.claimed.id, each.claimed.fence))
    ):
        yield


class TrackedOutcome(PendingOutcome, gc=True):
    """One that the collector sees: that of a killed process would keep its whole run in memory."""


@contextmanager
def tracked_outcomes() -> Iterator[None]:
    """Have nothing of a run survive it."""
    with mock.patch.object(completer, "PendingOutcome", TrackedOutcome):
        yield


@contextmanager
def errors_without_places() -> Iterator[None]:
    """Have an error recorded by its words: where it was raised says nothing here, and costs as much as a claim."""
    with mock.patch.object(resolve_outcome, "format_stack", type_of_error):
        yield


def type_of_error(error: BaseException) -> str:
    """What is recorded in the place of its frames."""
    return type(error).__name__


_runs = count(1)


@cache
def prepare_process() -> None:
    """Have collections pass over what there is by now, and nobody told how a run that was left behind goes."""
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.unraisablehook = lambda _: None
    atexit.register(collect)


def collect() -> None:
    """Collect what runs have left behind, after them: a coroutine that is thrown away runs its last lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


def simulate(plan: Plan) -> Result:
    """Run a plan."""
    world = World(plan.seed)
    prepare_process()
    if next(_runs) % COLLECTED_EVERY == 0:
        collect()
    with tracked_outcomes(), errors_without_places(), ids_of(world), order_of_sets():
        simulation = Simulation(plan, world)
        try:
            return simulation.run()
        finally:
            simulation.close()


class Simulation:
    """The world of one run, and what its handlers can reach of it."""

    def __init__(self, plan: Plan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.history = History(world)
        self.server = Server(world, plan.has_standby)
        self.server.crashes_at = [
            world.now + each.at for each in plan.faults if each.kind in ("crash", "failover")
        ]
        self.hints = Hints(world)
        if not plan.has_hints:
            self.hints.deaf_until = math.inf
        self._driver = world.loop("driver")
        self._producers = world.loop("producers")
        self._database = SimulatedDatabase(self.server, "producer")
        workload.app.bind("sqlite:///:memory:", database=self._database)  # type: ignore[arg-type]
        workload.scene = self
        self._lives = [0] * plan.processes
        self._processes: dict[int, Process] = {}
        self._all: list[Process] = []
        self._began_at = world.now
        self._left = len(plan.jobs)
        self._faults_left = len(plan.faults)
        self._unpublished = len({each.at for each in plan.events})
        self._signalled: set[str] = set()
        self._is_ending = False
        self.defects: list[str] = []

    def process_of(self, worker: str) -> str:
        return worker.rpartition("-")[0]

    def run(self) -> Result:
        """Let everything happen, then hold it against the laws."""
        plan, world = self.plan, self.world
        for number in range(plan.processes):
            self._start(number)
        for (at, is_undone), jobs in groupby(plan.jobs, lambda job: (job.at, job.undone)):
            self._driver.call_later(at, self._begin_start, list(jobs), is_undone)
        for at, events in groupby(plan.events, lambda event: event.at):
            self._driver.call_later(at, self._begin_publish, list(events))
        for fault in plan.faults:
            self._driver.call_later(fault.at, self._begin_fault, fault)
        self._driver.call_later(SIGNAL_S, self._signal)
        faults_end = max((each.at + each.seconds for each in plan.faults), default=0.0)
        begins = [each.at for each in plan.jobs]
        begins += [each.at for each in plan.faults]
        begins += [each.at for each in plan.events]
        all_begun = max(begins)
        until = world.now + max(faults_end, all_begun) + QUIET_S
        # A fault that goes on when everything has ended meets nobody.
        world.run_until(world.now + all_begun)
        while not (is_drained := self._is_drained()) and world.now < until:
            world.run_until(world.now + 0.1)
        world.note("drained" if is_drained else "not drained")
        self._end_processes()
        # What an operator or producer still has open is not for the laws to meet.
        world.run_until(world.now + LOCK_WAIT_S, lambda: not self.server.is_busy)
        breaches = check(self, is_drained)
        return Result(
            seed=plan.seed,
            breaches=breaches,
            digest=hashlib.sha256("\n".join(world.trace).encode()).hexdigest(),
            jobs=sum(each.count for each in plan.jobs),
            faults=len(self.history.troubles),
            begun=sum(len(each) for each in self.history.begun.values()),
            refused=self.history.refused,
            turns=world.turns,
            trace=world.trace,
        )

    def close(self) -> None:
        """Leave nothing behind."""
        for loop in list(self.world.loops):
            self.world.retire(loop)

    @property
    def loops(self) -> list[SimulatedLoop]:
        """Those of no process, in which nothing may fail."""
        return [self._driver, self._producers, self.server.loop]

    # ---- Processes

    def _start(self, number: int) -> None:
        if self._is_ending:
            return
        name = f"w{number}.{self._lives[number]}"
        self._lives[number] += 1
        made = Process(self.world, self.server, self.hints, self.history, name, self.plan)
        self._processes[number] = made
        self._all.append(made)

    @property
    def processes(self) -> list[Process]:
        """All that there were."""
        return self._all

    def _end_processes(self) -> None:
        """Ask all to end, which they must do in time."""
        self._is_ending = True
        for each in self._processes.values():
            if not each.is_over:
                each.stop()
        living = self._processes.values()
        if not self.world.run_until(
            self.world.now + 30, lambda: all(each.is_over for each in living)
        ):
            self.defects.append("a worker did not end within 30 s of being asked")

    # ---- Jobs

    def _begin_start(self, jobs: list[PlannedJob], is_undone: bool) -> None:
        self._producers.create_task(self._start_jobs(jobs, is_undone))

    async def _start_jobs(self, jobs: list[PlannedJob], is_undone: bool) -> None:
        """Start jobs in one transaction, until it is known to have committed."""
        history = self.history
        ids = [workload.app.new_id() for _ in jobs]
        if is_undone:
            history.undone.update({str(id) for id in ids})
        # Nobody knows whether those that failed were started; with the same ids, that does not matter.
        while not await self._try_to_start(jobs, ids, is_undone):  # noqa: ASYNC110
            await asyncio.sleep(0.3)
        self._left -= len(jobs)
        if is_undone:
            return
        for job, id in zip(jobs, ids, strict=True):
            history.acknowledged[job.number] = str(id)
            self.world.note(f"started {job.type} {str(id)[-6:]}")
            if job.cancel_after:
                self._driver.call_later(job.cancel_after, self._begin_cancel, str(id))
        self.hints.send([Hint("due", type) for type in sorted({each.type for each in jobs})])

    async def _try_to_start(self, jobs: list[PlannedJob], ids: list[UUID], is_undone: bool) -> bool:
        app = workload.app
        try:
            async with app.transaction() as tx:
                alike: list[Start] = []
                for job, id in zip(jobs, ids, strict=True):
                    input = {name: getattr(job, name) for name in INPUT}
                    if job.type == "join":
                        parts = [{"part": each, "ms": job.ms} for each in range(job.parts)]
                        blockers = await app.start_many(tx, workload.part, parts)
                        await app.start(tx, job.type, input, id=id, blockers=blockers)
                    elif job.number % self.plan.one_by_one:
                        alike.append(Start(job.type, input, id=id))
                    else:
                        await app.start(tx, job.type, input, id=id)
                if alike:
                    await app.start_all(tx, alike)
                if is_undone:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return True
        except LOST:
            return False
        return True

    # ---- Events

    def _begin_publish(self, events: list[PlannedEvent]) -> None:
        task = self._producers.create_task(consumers.publish(events, self.history, self.hints.send))
        task.add_done_callback(self._note_published)

    def _note_published(self, task: asyncio.Task[None]) -> None:
        self._unpublished -= 1
        if not self._unpublished:
            self._driver.call_later(MENDED_S, self._mend)

    def _mend(self) -> None:
        """Mend what made consumers fail, and have what was parked retried until nothing is."""
        self.history.is_mended = True
        self._producers.create_task(consumers.retry_parked(self._database, self.hints.send))
        self._driver.call_later(MENDED_S, self._mend)

    # ---- Cancellation and signals

    def _begin_cancel(self, id: str) -> None:
        self._producers.create_task(self._cancel(id))

    async def _cancel(self, id: str) -> None:
        self.world.note(f"cancel {id[-6:]}")
        try:
            async with workload.app.transaction() as tx:
                await workload.app.chains.cancel(tx, id, "as planned")
        except HoldfastError as error:
            self.world.note(f"cancel {id[-6:]}: {type(error).__name__}")

    def _signal(self) -> None:
        """Send every function the signal that it waits for, a while after its start."""
        self._producers.create_task(self._signal_all())
        self._driver.call_later(SIGNAL_S, self._signal)

    async def _signal_all(self) -> None:
        app = workload.app
        for job in self.plan.jobs:
            id = self.history.acknowledged.get(job.number)
            if job.type != "function" or id is None or id in self._signalled:
                continue
            if self.world.now < self._began_at + job.at + (job.number % 2) * LATE_SIGNAL_S:
                continue
            try:
                async with app.transaction() as tx:
                    await app.signal(tx, "go", key=id)
            except LOST:
                continue
            self._signalled.add(id)

    def _is_drained(self) -> bool:
        if self._left or self._faults_left:
            return False
        if self.server.is_busy:
            # Its connection shows what an open transaction has written, which may be rolled back.
            return False
        if self._unpublished or (self.plan.events and not self.history.is_mended):
            return False
        ((left,),) = self.server.query(_LEFT)
        return not left

    # ---- Faults

    def _begin_fault(self, fault: PlannedFault) -> None:
        """Make a fault; a moment later if there is nobody now whom it could meet."""
        if self._break(fault):
            self._faults_left -= 1
        elif not self._is_ending:
            self._driver.call_later(POSTPONED_S, self._begin_fault, fault)

    def _break(self, fault: PlannedFault) -> bool:
        kind, seconds, history = fault.kind, fault.seconds, self.history
        if kind in ("crash", "failover", "deaf"):
            return self._break_for_all(kind, seconds)
        process = self._processes[fault.process]
        if process.is_over:
            return False
        if kind in WEATHER:
            trouble = history.trouble(kind, process.name, seconds)
            # A request on its way may still arrive long after.
            trouble.ends_at += 15
            process.database.network.set(kind, seconds, fault.purpose)  # type: ignore[arg-type]
        elif kind == "pause":
            if process.is_paused:
                return False
            history.trouble(kind, process.name, seconds)
            process.pause()
            self._driver.call_later(seconds, self._resume, process)
        elif kind == "kill":
            history.trouble(kind, process.name, seconds)
            process.kill()
            self._driver.call_later(seconds, self._start, fault.process)
        elif process.is_stopping:
            return False
        else:
            history.trouble(kind, process.name, seconds)
            process.stop()
            self._driver.call_later(seconds, self._start_after, fault.process)
        return True

    def _break_for_all(self, kind: str, seconds: float) -> bool:
        if kind == "failover" and self.server.is_cut_off:
            return False
        self.history.trouble(kind, "", seconds)
        if kind == "crash":
            self.server.crash(seconds)
        elif kind == "failover":
            self.server.cut_off()
            self._driver.call_later(seconds, self.server.promote)
        else:
            self.hints.deaf_until = max(self.hints.deaf_until, self.world.now + seconds)
        return True

    def _resume(self, process: Process) -> None:
        if not process.is_over:
            process.resume(self._driver.call_later)

    def _start_after(self, number: int) -> None:
        """Start the next life of a process once its last one has ended."""
        if self._processes[number].is_over:
            self._start(number)
        else:
            self._driver.call_later(0.2, self._start_after, number)
