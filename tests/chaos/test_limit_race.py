"""Eight processes race for limited jobs, are killed and stopped past their leases, and two checkers look for a mistake.

One asks the database, again and again, in consistent snapshots; the other compares how long the processes held jobs by
their own belief, on one clock. Neither knows how limits are kept.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tests.chaos.limit_racer import Planted, Race, Span
from tests.support.limit_checks import LimitChecker, PostgresLimitChecker, SqliteLimitChecker
from tests.worker.workshop import Workshop

CLAIMERS, PRODUCERS = 5, 2
JOBS = int(os.environ.get("HOLDFAST_LIMIT_RACE_JOBS", "300"))
LONG_JOBS = 20_000
PATIENCE_S = 60.0
"""So long without a job ending is a lost wake-up."""


@dataclass
class Course:
    """The processes of a race and what they tell."""

    url: str
    workshop: Workshop
    checker: LimitChecker
    spans: list[Span] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    looks: int = 0
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    async def enter(self, race: Race) -> asyncio.subprocess.Process:
        """Start a process."""
        text = msgspec.json.encode(race).decode()
        command = (sys.executable, "-m", "tests.chaos.limit_racer", self.url, text)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        self.processes.append(process)
        self.readers.append(asyncio.create_task(self._read(process)))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                self.spans.append(msgspec.json.decode(line, type=Span))
            except msgspec.DecodeError:
                assert process.returncode != 0, "only a killed process leaves half a line"

    async def check(self, allowed: int, holds: bool) -> None:
        """Ask the database until something is broken, or until cancelled."""
        while not self.broken:
            self.broken = await asyncio.to_thread(self.checker.broken, allowed, holds)
            self.looks += 1

    async def close(self) -> None:
        """Have every process gone."""
        for process in self.processes:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self.processes))
        await asyncio.gather(*self.readers)
        self.checker.close()


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
    await made.close()


async def run_race(course: Course, race: Race, jobs: int, stops: bool) -> None:
    """Let everybody run until every job has ended, or a checker has found something."""
    chance = random.Random(race.seed)
    replace = msgspec.structs.replace
    seeds = iter(range(100, 1_000_000))
    for _ in range(PRODUCERS):
        producer = replace(race, part="producer", seed=next(seeds), jobs=jobs // PRODUCERS)
        await course.enter(producer)
    await course.enter(replace(race, part="operator", seed=next(seeds)))
    claimers = [await course.enter(replace(race, seed=next(seeds))) for _ in range(CLAIMERS)]
    checking = asyncio.create_task(course.check(race.allowed, race.ordered))
    total = jobs // PRODUCERS * PRODUCERS
    ended, since = -1, time.monotonic()
    try:
        while not course.broken:
            totals, _ = await course.workshop.run(course.workshop.store.workers.totals(10))
            if totals.completed == total and totals.live == 0:
                break
            if totals.completed != ended:
                ended, since = totals.completed, time.monotonic()
            assert time.monotonic() - since < PATIENCE_S, f"stuck at {ended} of {total}"
            await asyncio.sleep(0.2)
            place = chance.randrange(CLAIMERS)
            if chance.random() < 0.3:
                claimers[place].kill()
                claimers[place] = await course.enter(replace(race, seed=next(seeds)))
            elif stops and chance.random() < 0.3:
                claimers[place].send_signal(signal.SIGSTOP)
                await asyncio.sleep(race.lease_ms / 1000 * 1.5)
                claimers[place].send_signal(signal.SIGCONT)
    finally:
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)


def overlaps(spans: list[Span], allowed: int) -> list[str]:
    """Where processes held more of a gate than allowed, by their own belief."""
    found = []
    moments = [(each.begins, 1, each.gate) for each in spans]
    moments += [(each.ends, -1, each.gate) for each in spans]
    now: dict[str, int] = {}
    for at, change, gate in sorted(moments):
        now[gate] = now.get(gate, 0) + change
        if now[gate] > allowed:
            found.append(f"{now[gate]} held {gate} at {at}")
    return found


def disorder(spans: list[Span]) -> list[str]:
    """Where a job began after one that was started later."""
    by_gate: dict[str, list[Span]] = {}
    for each in sorted(spans, key=lambda span: span.begins):
        by_gate.setdefault(each.gate, []).append(each)
    return [
        f"{later.id} after {earlier.id} at {gate}"
        for gate, line in by_gate.items()
        for earlier, later in pairwise(line)
        if later.id < earlier.id
    ]


@pytest.mark.parametrize(
    ("allowed", "keys", "ordered"), [(1, 3, False), (3, 40, False), (1, 10, True)]
)
async def test_no_limit_is_broken_and_nothing_is_left_in_a_race(
    course: Course, allowed: int, keys: int, ordered: bool
) -> None:
    race = Race("claimer", 1, keys=keys, allowed=allowed, ordered=ordered)
    await run_race(course, race, JOBS, course.workshop.store.dialect == "postgresql")
    await course.close()
    assert not course.broken
    assert course.looks > 3
    assert not overlaps(course.spans, allowed)
    if ordered:
        assert not disorder(course.spans)


@pytest.mark.torture
@pytest.mark.parametrize(
    ("allowed", "keys", "ordered"), [(1, 3, False), (2, 400, False), (1, 50, True)]
)
async def test_no_limit_is_broken_in_a_long_race(
    course: Course, allowed: int, keys: int, ordered: bool
) -> None:
    race = Race("claimer", 2, keys=keys, allowed=allowed, ordered=ordered)
    await run_race(course, race, LONG_JOBS, course.workshop.store.dialect == "postgresql")
    await course.close()
    assert not course.broken
    assert not overlaps(course.spans, allowed)
    if ordered:
        assert not disorder(course.spans)


@pytest.mark.parametrize("planted", ["no freshness check", "older turn accepted"])
async def test_a_mistake_in_the_protocol_is_found(
    postgres_workshop: Workshop, worker_url: str, planted: Planted
) -> None:
    course = Course(worker_url, postgres_workshop, PostgresLimitChecker(worker_url))
    race = Race("claimer", 3, keys=2, allowed=1, planted=planted)
    found: Any = None
    try:
        await run_race(course, race, 4 * JOBS, stops=False)
    finally:
        found = course.broken
        await course.close()
    assert found or overlaps(course.spans, 1)
