"""Eight processes race for limited jobs, are killed and stopped past their leases, and two checkers look for a mistake.

One asks the database, again and again, in consistent snapshots; the other compares how long the processes held jobs by
their own belief, on one clock, and when they began by the database's. Neither knows how limits are kept. What a claim
by an older snapshot or at a locked partition does is tried in `tests/contract/test_postgres_stale_claims.py`.
"""

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from holdfast.core.partitions import BatchRule
from tests.chaos.limit_racer import Race, Span
from tests.support.limit_checks import (
    COSTS,
    Bounds,
    LimitChecker,
    PostgresLimitChecker,
    Settlement,
    SqliteLimitChecker,
    Start,
)
from tests.support.until import PATIENCE_S, until
from tests.support.warm_python import LIBRARIES, WarmProcess
from tests.worker.workshop import Workshop

ROOT = Path(__file__).parents[2]
CLAIMERS, PRODUCERS = 5, 2
JOBS = int(os.environ.get("HOLDFAST_LIMIT_RACE_JOBS", "160"))
LONG_JOBS = int(os.environ.get("HOLDFAST_LONG_RACE_JOBS", "20000"))
CALM_JOBS = 8
KILLED = -signal.SIGKILL
TWO_TYPES = ("mail", "text")

RACES = {
    "one at a time": Race("claimer", 1, Bounds(allowed=1), keys=3),
    "a limit of each key and of all types": Race(
        "claimer", 1, Bounds(allowed=3, total=8), keys=40, types=TWO_TYPES
    ),
    "in order": Race("claimer", 1, Bounds(allowed=1, ordered=True, holds=True), keys=10),
    "a rate of each key": Race("claimer", 1, Bounds(allowed=4, rate=10, period_ms=400), keys=3),
    "a rate of a type": Race(
        "claimer", 1, Bounds(rate=20, period_ms=600, counted="type"), types=TWO_TYPES
    ),
    "a rate shared by name, counted in steps": Race(
        "claimer", 1, Bounds(rate=70, period_ms=2_000, counted="name"), types=TWO_TYPES
    ),
    "batches": Race("claimer", 1, Bounds(allowed=6, batch=BatchRule(4, 150), calls=3), keys=5),
    "costs of each key and of all types": Race(
        "claimer", 1, Bounds(allowed=9, total=24, weighed=True), keys=20, types=TWO_TYPES
    ),
    "a rate of the costs of each key": Race(
        "claimer", 1, Bounds(rate=30, period_ms=400, weighed=True), keys=3
    ),
    "a rate of costs shared by name, in steps": Race(
        "claimer",
        1,
        Bounds(rate=150, period_ms=1_500, counted="name", weighed=True),
        types=TWO_TYPES,
    ),
}
LONG_RACES = {
    "one at a time": Race("claimer", 2, Bounds(allowed=1), keys=3),
    "a limit of each key and of all types": Race(
        "claimer", 2, Bounds(allowed=2, total=30), keys=400, types=TWO_TYPES
    ),
    "in order": Race("claimer", 2, Bounds(allowed=1, ordered=True, holds=True), keys=50),
    "a rate of each key": Race("claimer", 2, Bounds(allowed=4, rate=60, period_ms=500), keys=4),
    "a rate shared by name, counted in steps": Race(
        "claimer", 2, Bounds(rate=300, period_ms=1_000, counted="name"), types=TWO_TYPES
    ),
    "batches": Race("claimer", 2, Bounds(allowed=12, batch=BatchRule(8, 200), calls=3), keys=20),
    "costs of each key and of all types": Race(
        "claimer", 2, Bounds(allowed=12, total=80, weighed=True), keys=100, types=TWO_TYPES
    ),
    "a rate of costs shared by name, in steps": Race(
        "claimer",
        2,
        Bounds(rate=1_000, period_ms=1_000, counted="name", weighed=True),
        types=TWO_TYPES,
    ),
}


@dataclass
class Course:
    """The processes of a race and what they tell."""

    url: str
    workshop: Workshop
    checker: LimitChecker
    spans: list[Span] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    looks: int = 0
    is_over: bool = False
    processes: list[WarmProcess] = field(default_factory=list)
    at_work: set[WarmProcess] = field(default_factory=set)
    readers: list[threading.Thread] = field(default_factory=list)
    halves: list[tuple[WarmProcess, str]] = field(default_factory=list)

    def enter(self, race: Race) -> WarmProcess:
        """Start a process."""
        text = msgspec.json.encode(race).decode()
        words = ("-m", "tests.chaos.limit_racer", self.url, text)
        process = LIBRARIES.open(words, ROOT, os.environ)
        self.processes.append(process)
        self.readers.append(threading.Thread(target=self._read, args=(process,)))
        self.readers[-1].start()
        return process

    def _read(self, process: WarmProcess) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.at_work.add(process)
                try:
                    told: Start | Span | Settlement = msgspec.json.decode(
                        line, type=Start | Span | Settlement
                    )
                except msgspec.DecodeError:
                    self.halves.append((process, line))
                    return
                if isinstance(told, Start):
                    self.starts.append(told)
                elif isinstance(told, Settlement):
                    self.settlements.append(told)
                else:
                    self.spans.append(told)

    async def check(self, bounds: Bounds, inside: bool) -> None:
        """Ask the database until something is broken, or until it is over."""
        while not (self.broken or self.is_over):
            self.broken = await asyncio.to_thread(self.checker.broken, bounds, inside)
            self.looks += 1
            await asyncio.sleep(0.01)

    async def count(self) -> tuple[int, int]:
        """Return how many jobs are live, and how many completed, while no process has failed."""
        assert self._failed() == []
        workshop = self.workshop
        totals, _ = await workshop.database.read_async(workshop.store.workers.totals(10))
        return totals.live, totals.completed

    async def has_live(self, jobs: int) -> bool:
        """Whether so many jobs are live."""
        return (await self.count())[0] >= jobs

    def verdict(self, bounds: Bounds) -> list[str]:
        """Everything that did not hold, by the database and by what the processes told."""
        return [
            *self.broken,
            *(f"a process ended with {code}" for code in self._failed()),
            *overlaps(self.spans, bounds),
            *bounds.crowded(self.starts, self.settlements),
            *bounds.oversized(self.starts),
            *(disorder(self.spans) if bounds.ordered else ()),
        ]

    def _failed(self) -> list[int]:
        codes = (process.poll() for process in self.processes)
        return [code for code in codes if code is not None and code not in (0, KILLED)]

    def close(self) -> None:
        """Have every process gone."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            print(_rest(process), end="", file=sys.stderr)
        for reader in self.readers:
            reader.join()
        # Only a killed process leaves half a line.
        assert [line for process, line in self.halves if process.returncode != KILLED] == []


def _rest(process: WarmProcess) -> str:
    """What an ended process said of its errors, once."""
    if process.stderr is None or process.stderr.closed:
        return ""
    with process.stderr:
        return process.stderr.read()


@pytest_asyncio.fixture
async def course(
    workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Course]:
    """A race on the workshop's database; no process outlives it."""
    if workshop.store.dialect == "postgresql":
        url = request.getfixturevalue("worker_url")
        made = Course(url, workshop, PostgresLimitChecker(url))
    else:
        url = str(tmp_path / "holdfast.db")
        made = Course(url, workshop, SqliteLimitChecker(url))
    yield made
    made.close()
    made.checker.close()


async def run_race(course: Course, race: Race, jobs: int) -> None:
    """Let everybody run until every job has ended, or a checker has found something.

    A planted mistake is to be found as what it is, without looking at how partitions are kept.
    """
    inside = not race.planted
    replace = msgspec.structs.replace
    seeds = iter(range(100, 1_000_000))
    for _ in range(PRODUCERS):
        producer = replace(race, part="producer", seed=next(seeds), jobs=jobs // PRODUCERS)
        course.enter(producer)
    if race.bounds.rate is not None:
        # What waits already is claimed in a burst, however slow the machine is.
        await until(lambda: course.has_live(jobs // 2))
    course.enter(replace(race, part="operator", seed=next(seeds)))
    claimers = [course.enter(replace(race, seed=next(seeds))) for _ in range(CLAIMERS)]
    checking = asyncio.create_task(course.check(race.bounds, inside))
    chance = random.Random(race.seed)
    total = jobs // PRODUCERS * PRODUCERS
    ended, disturbed, since = -1, 0, time.monotonic()
    try:
        while not (course.broken or (race.planted and course.verdict(race.bounds))):
            live, completed = await course.count()
            if completed == total and live == 0:
                break
            if completed != ended:
                ended, since = completed, time.monotonic()
            # So long without a job ending is a lost wake-up.
            assert time.monotonic() - since < PATIENCE_S, f"stuck at {ended} of {total}"
            # Disturbances come one by one: a race that is only disturbed tells nothing.
            await asyncio.sleep(0.2)
            place = chance.randrange(CLAIMERS)
            if claimers[place] not in course.at_work or completed < disturbed + CALM_JOBS:
                # It has only just started, or the last disturbance is not over: a slow machine would do little else.
                continue
            disturbed = completed
            if chance.random() < 0.3:
                claimers[place].kill()
                claimers[place] = course.enter(replace(race, seed=next(seeds)))
            elif chance.random() < 0.3 and claimers[place].poll() is None:
                # On SQLite it may have the file's write lock: then all others stand still for as long.
                claimers[place].send_signal(signal.SIGSTOP)
                # Its leases run out meanwhile, by the database's clock.
                await asyncio.sleep(race.lease_ms / 1000 * 1.5)
                claimers[place].send_signal(signal.SIGCONT)
    finally:
        # A look is waited for, because its connection is in use.
        course.is_over = True
        await checking
        course.close()
    course.broken = course.broken or course.checker.broken(race.bounds, inside)


def overlaps(spans: list[Span], bounds: Bounds) -> list[str]:
    """Where processes held more than allowed by their own belief: of a partition, and in all."""
    allowed = {"all": bounds.total}
    moments = [
        (at, change, gate)
        for each in spans
        for at, change in ((each.begins, each.cost), (each.ends, -each.cost))
        for gate in (each.gate, "all")
    ]
    now: dict[str, int] = {}
    found = []
    for at, change, gate in sorted(moments):
        now[gate] = now.get(gate, 0) + change
        most = allowed.get(gate, bounds.allowed)
        if most is not None and now[gate] > most:
            found.append(f"{now[gate]} held {gate} at {at}")
    return found


def disorder(spans: list[Span]) -> list[str]:
    """Where a job began after one that was started later."""
    by_partition: dict[str, list[Span]] = {}
    for each in sorted(spans, key=lambda span: span.begins):
        by_partition.setdefault(each.gate, []).append(each)
    return [
        f"{later.id} after {earlier.id} at {gate}"
        for gate, line in by_partition.items()
        for earlier, later in pairwise(line)
        if later.id < earlier.id
    ]


def was_reached(course: Course, bounds: Bounds) -> bool:
    """Whether the race came as far as its rate, so that it could have been broken."""
    if bounds.rate is None:
        return True
    lower = msgspec.structs.replace(bounds, rate=bounds.rate - (COSTS if bounds.weighed else 1))
    return bool(lower.crowded(course.starts, course.settlements))


@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
async def test_no_limit_is_broken_and_nothing_is_left_in_a_race(course: Course, race: Race) -> None:
    await run_race(course, race, JOBS)
    assert course.verdict(race.bounds) == []
    assert course.looks > 3
    assert was_reached(course, race.bounds)


@pytest.mark.lasting
@pytest.mark.parametrize("race", LONG_RACES.values(), ids=LONG_RACES)
async def test_no_limit_is_broken_in_a_long_race(course: Course, race: Race) -> None:
    await run_race(course, race, LONG_JOBS)
    assert course.verdict(race.bounds) == []
    assert course.looks > 3


async def test_starts_that_are_forgotten_early_are_found_as_too_many(course: Course) -> None:
    bounds = Bounds(rate=5, period_ms=1_000)
    race = Race("claimer", 4, bounds, keys=2, planted="starts forgotten early")
    await run_race(course, race, JOBS)
    assert {each.partition(":")[0] for each in course.verdict(bounds)} == {"too many starts"}


async def test_costs_that_are_forgotten_early_are_found_as_too_many_starts(course: Course) -> None:
    bounds = Bounds(rate=20, period_ms=1_000, weighed=True)
    race = Race("claimer", 4, bounds, keys=2, planted="costs forgotten early")
    await run_race(course, race, JOBS)
    assert {each.partition(":")[0] for each in course.verdict(bounds)} == {"too many starts"}


async def test_running_costs_that_are_not_counted_are_found(course: Course) -> None:
    bounds = Bounds(allowed=8, weighed=True)
    race = Race("claimer", 4, bounds, keys=2, planted="running costs not counted")
    await run_race(course, race, JOBS)
    found = {each.partition(":")[0] for each in course.broken}
    assert found <= {"more than allowed run"}
    assert course.verdict(bounds)


async def test_costs_that_are_given_back_twice_are_found_as_too_many_starts(course: Course) -> None:
    bounds = Bounds(rate=20, period_ms=1_000, weighed=True)
    race = Race("claimer", 4, bounds, keys=2, planted="costs settled twice")
    await run_race(course, race, JOBS)
    assert {each.partition(":")[0] for each in course.verdict(bounds)} == {"too many starts"}


async def test_room_that_is_not_given_back_at_the_end_of_a_job_is_found(course: Course) -> None:
    bounds = Bounds(allowed=8, weighed=True)
    race = Race("claimer", 4, bounds, keys=2, planted="permit not returned")
    await run_race(course, race, JOBS)
    found = {each.partition(":")[0] for each in course.verdict(bounds)}
    assert found == {"a queue has room and a due job but no signal"}
