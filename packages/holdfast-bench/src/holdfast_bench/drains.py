"""Draining backlogs with `holdfast worker`: no-op jobs, under conditions that slow queues down, and other workloads."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack

from holdfast.cli.console import print_info
from holdfast_bench.baselines import BATCH, LimitLoop, drain_bare
from holdfast_bench.measurement import Bench, Contest, FigureTarget, Result, with_beside
from holdfast_bench.seeding import FRESH, LoadCondition, reset, seeded_database, snapshot_held
from holdfast_bench.subject import BareWorkerCommand, DrainResult, WorkerCommand, drain
from holdfast_bench.workload import (
    BATCH_SIZE,
    IO_SECONDS,
    KEYED,
    fill,
    fill_keys,
    numbered_types,
)

CONDITIONS = {
    "drain_held_snapshot": LoadCondition("held snapshot", held_snapshot=True),
    "drain_after_finished": LoadCondition("after finished"),
    "drain_unhandled_backlog": LoadCondition("unhandled backlog", unhandled=1_000_000),
    "drain_in_flight": LoadCondition("in flight", in_flight=5_000),
}
MANY_TYPES = {"drain_20_types": (20, 0.9, 1.0), "drain_200_types": (200, 0.7, 0.9)}
"""How many types, the floor and the goal."""
KEYS = {"flow_2000_keys": (2_000, 0.33, 0.5), "flow_100k_keys": (None, 0.3, 0.4)}
"""How many keys, the floor and the goal; without a number, one job of as many keys as the scale says."""
IO_SLOTS = 50
IO_CEILING = IO_SLOTS / IO_SECONDS


def measure_noop(bench: Bench) -> list[Result]:
    """Measure the fresh drain, and the conditions asked for with a fresh drain among them, each interleaved."""
    results = [_fresh(bench)] if "drain" in bench.wanted else []
    wanted = {
        name: _scale_condition(condition, bench)
        for name, condition in CONDITIONS.items()
        if name in bench.wanted
    }
    return results + (_under(bench, wanted) if wanted else [])


def _fresh(bench: Bench) -> Result:
    with seeded_database(bench.server) as url:
        runs = DrainRuns(url, FRESH, bench.scale.jobs)
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": runs.ours,
                "limit": runs.limit,
                "bare worker": runs.bare_worker,
                "bare loop": runs.bare_loop,
            },
        )
    worker_us, server_us = (statistics.median(each) for each in zip(*runs.costs, strict=True))
    result = contest.result(
        "drain",
        "jobs/s",
        beside={"bare_worker": "bare worker", "bare_loop": "bare loop"},
        target=FigureTarget("ratio", contest.ratio("ours", "limit"), floor=0.7, goal=0.9),
    )
    return with_beside(result, {"worker_us": worker_us, "server_us": server_us})


def _under(bench: Bench, conditions: Mapping[str, LoadCondition]) -> list[Result]:
    with ExitStack() as stack:
        contenders = {}
        for name, condition in {"fresh": FRESH, **conditions}.items():
            url = stack.enter_context(seeded_database(bench.server, condition))
            runs = DrainRuns(url, condition, bench.scale.jobs)
            contenders[name] = runs.ours
            if condition is not FRESH:
                contenders[f"{name} limit"] = runs.limit
        contest = Contest(bench.scale.side_rounds, contenders)
    return [
        contest.result(
            name,
            "jobs/s",
            ours=name,
            limit=f"{name} limit",
            against="limit loop, same condition",
            beside={"fresh": "fresh"},
            target=FigureTarget(
                "× our fresh drain", contest.ratio(name, "fresh"), floor=0.8, goal=0.95
            ),
        )
        for name in conditions
    ]


def _scale_condition(condition: LoadCondition, bench: Bench) -> LoadCondition:
    if condition.name == "after finished":
        return LoadCondition(condition.name, finished=bench.scale.finished)
    return condition.scale(bench.scale.share)


class DrainRuns:
    """The contenders under one condition."""

    def __init__(self, url: str, condition: LoadCondition, jobs: int) -> None:
        """Take the database, what it was seeded with, and how many jobs to drain."""
        self._url = url
        self._condition = condition
        self._jobs = jobs * 3 if condition.held_snapshot else jobs
        self.costs: list[tuple[float, float]] = []

    def ours(self) -> float:
        """Drain with the command as people type it; note what it cost."""
        found = self._drain_once(WorkerCommand(self._url))
        self.costs.append((found.worker_us, found.server_us))
        return found.rate

    def bare_worker(self) -> float:
        """Drain with the worker object alone."""
        return self._drain_once(BareWorkerCommand(self._url)).rate

    def _drain_once(self, command: WorkerCommand) -> DrainResult:
        reset(self._url, self._condition)
        with snapshot_held(self._url, self._condition.held_snapshot):
            backlog = fill(self._url, "noop", self._jobs)
            return drain(command, backlog, self._jobs)

    def limit(self) -> float:
        """Drain with the limit loop."""
        with LimitLoop(self._url) as loop:
            if self._condition.is_seeded:
                loop.vacuum()
            else:
                loop.empty()
            with snapshot_held(self._url, self._condition.held_snapshot):
                loop.start(self._jobs)
                return loop.drain().rate

    def bare_loop(self) -> float:
        """Drain one table without history."""
        return drain_bare(self._url, self._jobs)


def measure_two_processes(bench: Bench) -> list[Result]:
    """Measure `holdfast worker --processes 2`, and two limit loops in turn."""
    jobs = bench.scale.jobs * 2
    with seeded_database(bench.server) as url:
        command = WorkerCommand(url, options=("--processes", "2"))
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": lambda: _emptied_and_drained(command, jobs),
                "limit": lambda: _two_limit_loops(url, jobs),
            },
        )
    share = contest.ratio("ours", "limit")
    return [
        contest.result(
            "drain_two_processes",
            "jobs/s",
            against="two limit loops",
            target=FigureTarget("ratio", share, floor=0.6, goal=0.8),
        )
    ]


def _emptied_and_drained(command: WorkerCommand, jobs: int) -> float:
    """Drain a new backlog, spread over all types of the command."""
    reset(command.url)
    return drain(command, fill(command.url, command.types, jobs), jobs).rate


def _two_limit_loops(url: str, jobs: int) -> float:
    with LimitLoop(url) as loop:
        loop.empty()
        loop.start(jobs)
    command = [sys.executable, "-m", "holdfast_bench.baselines", url, str(BATCH)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    spans = [each.communicate()[0].split() for each in both]
    begun = min(float(begin) for begin, _ in spans)
    return jobs / (max(float(end) for _, end in spans) - begun)


def measure_standby(bench: Bench) -> list[Result]:
    """Drain with claims as by default and with claims that never wait: on a server without a standby, and with one."""
    results = []
    with bench.server.database() as url:
        alone = _claims_contest(bench, url)
        results.append(_claims_result(alone, "drain_no_standby", floor=0.95, goal=0.98))
        if bench.server.can_have_standby:
            with bench.server.synchronous_standby():
                beside = _claims_contest(bench, url)
            results.append(_claims_result(beside, "drain_standby", floor=0.8, goal=0.9))
        else:
            print_info(f"skipped: drain_standby: {bench.server.name} has no synchronous standby")
    return [each for each in results if each.name in bench.wanted]


def _claims_contest(bench: Bench, url: str) -> Contest:
    def drain_with(**settings: str) -> float:
        return _emptied_and_drained(WorkerCommand(url, settings=settings), bench.scale.jobs)

    return Contest(
        bench.scale.rounds,
        {"ours": drain_with, "lazy": lambda: drain_with(HOLDFAST_CLAIMS="lazy")},
    )


def _claims_result(contest: Contest, name: str, *, floor: float, goal: float) -> Result:
    share = contest.ratio("ours", "lazy")
    return contest.result(
        name,
        "jobs/s",
        limit="lazy",
        against="claims that do not wait",
        target=FigureTarget("ratio", share, floor=floor, goal=goal),
    )


def measure_io(bench: Bench) -> list[Result]:
    """Measure `holdfast worker --slots 50` with jobs that wait 5 ms, beside coroutines that only wait."""
    jobs = bench.scale.jobs
    with bench.server.database() as url:
        command = WorkerCommand(url, ("wait",), ("--slots", str(IO_SLOTS)))
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": lambda: _emptied_and_drained(command, jobs),
                "limit": lambda: IO_CEILING,
                "waiting": lambda: asyncio.run(_only_wait(jobs // 4)),
            },
        )
    return [
        contest.result(
            "drain_io",
            "jobs/s",
            against="ceiling",
            beside={"only_waiting": "waiting"},
            target=FigureTarget("jobs/s", contest.median("ours"), floor=8_000, goal=9_000),
        )
    ]


async def _only_wait(count: int) -> float:
    async def one() -> None:
        for _ in range(count // IO_SLOTS):
            await asyncio.sleep(IO_SECONDS)

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(IO_SLOTS)))
    return count / (time.perf_counter() - begun)


def measure_many_types(bench: Bench) -> list[Result]:
    """Drain the same number of jobs of one type and of many, in turn."""
    jobs = bench.scale.jobs
    wanted = {name: each for name, each in MANY_TYPES.items() if name in bench.wanted}
    with bench.server.database() as url:

        def drain_with(types: int) -> float:
            return _emptied_and_drained(WorkerCommand(url, numbered_types(types)), jobs)

        counts = {"one": 1} | {name: types for name, (types, _, _) in wanted.items()}
        contest = Contest(
            bench.scale.rounds,
            {name: lambda types=types: drain_with(types) for name, types in counts.items()},  # type: ignore[misc]
        )
    return [
        contest.result(
            name,
            "jobs/s",
            ours=name,
            limit="one",
            against="one type",
            target=FigureTarget("ratio", contest.ratio(name, "one"), floor=floor, goal=goal),
        )
        for name, (_, floor, goal) in wanted.items()
    ]


def measure_keys(bench: Bench) -> list[Result]:
    """Drain jobs of which three of each key run at once, and jobs without limits, in turn."""
    wanted = {name: each for name, each in KEYS.items() if name in bench.wanted}
    with bench.server.database() as url:

        def plain() -> float:
            return _emptied_and_drained(WorkerCommand(url, ("noop",)), bench.scale.jobs)

        def by_keys(keys: int | None) -> float:
            jobs = bench.scale.keys if keys is None else bench.scale.jobs
            reset(url)
            backlog = fill_keys(url, jobs, keys or jobs)
            return drain(WorkerCommand(url, (KEYED,)), backlog, jobs).rate

        contest = Contest(
            bench.scale.rounds,
            {
                "plain": plain,
                **{name: lambda keys=keys: by_keys(keys) for name, (keys, _, _) in wanted.items()},  # type: ignore[misc]
            },
        )
    return [
        contest.result(
            name,
            "jobs/s",
            ours=name,
            limit="plain",
            against="no limits",
            target=FigureTarget("ratio", contest.ratio(name, "plain"), floor=floor, goal=goal),
        )
        for name, (_, floor, goal) in wanted.items()
    ]


def measure_batch(bench: Bench) -> list[Result]:
    """Measure handlers that take a list of jobs, beside the limit loop with claims of the same size."""
    jobs = bench.scale.jobs
    with seeded_database(bench.server) as url:

        def limit() -> float:
            with LimitLoop(url, BATCH_SIZE) as loop:
                loop.empty()
                loop.start(jobs)
                return loop.drain().rate

        command = WorkerCommand(url, ("batch",))
        contest = Contest(
            bench.scale.side_rounds,
            {"ours": lambda: _emptied_and_drained(command, jobs), "limit": limit},
        )
    return [contest.result("drain_batch", "jobs/s")]
