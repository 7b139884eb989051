"""Draining backlogs with `holdfast worker`: no-op jobs, under conditions that slow queues down, and other workloads."""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import ExitStack

from holdfast.cli.console import print_info
from holdfast_bench.baselines import LimitLoop
from holdfast_bench.measurement import Bench, Contest, Result, make_result
from holdfast_bench.seeding import FRESH, LoadCondition, reset, seed, snapshot_held
from holdfast_bench.subject import DrainResult, WorkerCommand, drain
from holdfast_bench.workload import KEYED, fill, fill_keys, numbered_types

CONDITIONS = {
    "drain_held_snapshot": LoadCondition("held snapshot", held_snapshot=True),
    "drain_after_finished": LoadCondition("after finished"),
    "drain_unhandled_backlog": LoadCondition("unhandled backlog", unhandled=1_000_000),
    "drain_in_flight": LoadCondition("in flight", in_flight=5_000),
}
MANY = 200
KEYS = {"flow_2000_keys": (2_000, 0.33, 0.5), "flow_100k_keys": (None, 0.3, 0.4)}
"""How many keys, the floor and the goal; without a number, one job of as many keys as the scale says."""


def measure_noop(bench: Bench) -> list[Result]:
    """Measure the drain of no-op jobs beside the limit loop, and the write-ahead log it takes."""
    jobs, drained, written = bench.scale.jobs, list[DrainResult](), list[float]()
    with bench.server.database() as url:

        def ours() -> float:
            reset(url)
            before = bench.server.wal_bytes()
            backlog = fill(url, "noop", jobs)
            between = bench.server.wal_bytes()
            drained.append(drain(WorkerCommand(url), backlog, jobs))
            written.append((bench.server.wal_bytes() - between) / jobs)
            started.append((between - before) / jobs)
            return drained[-1].rate

        started: list[float] = []
        contest = Contest(
            bench.scale.rounds, {"ours": ours, "baseline": lambda: _limit_loop(url, jobs)}
        )
    costs = {
        "worker_us": statistics.median(each.worker_us for each in drained),
        "server_us": statistics.median(each.server_us for each in drained),
    }
    results = [
        contest.result("drain", "jobs/s", beside=costs, floor=0.7, goal=0.9),
        make_result(
            "wal_per_job",
            "bytes",
            written,
            beside={"to_start_it": statistics.median(started)},
            floor=700,
            goal=600,
        ),
    ]
    return [each for each in results if each.name in bench.wanted]


def _limit_loop(url: str, jobs: int) -> float:
    with LimitLoop(url) as loop:
        loop.create()
        loop.start(jobs)
        return loop.drain()


def measure_conditions(bench: Bench) -> list[Result]:
    """Measure the drain under conditions that slow queues down, a fresh one among them, each in its own database."""
    conditions = {
        name: _scale_condition(condition, bench)
        for name, condition in CONDITIONS.items()
        if name in bench.wanted
    }
    with ExitStack() as stack:
        contenders = {}
        for name, condition in {"fresh": FRESH, **conditions}.items():
            url = stack.enter_context(bench.server.database())
            seed(url, condition)
            contenders[name] = lambda url=url, condition=condition: _drain_under(
                url, condition, bench.scale.jobs
            )
        contest = Contest(bench.scale.side_rounds, contenders)
    return [
        contest.result(
            name,
            "jobs/s",
            ours=name,
            baseline="fresh",
            against="our fresh drain",
            floor=0.8,
            goal=0.95,
        )
        for name in conditions
    ]


def _scale_condition(condition: LoadCondition, bench: Bench) -> LoadCondition:
    if condition.name == "after finished":
        return LoadCondition(condition.name, finished=bench.scale.finished)
    return condition.scale(bench.scale.share)


def _drain_under(url: str, condition: LoadCondition, jobs: int) -> float:
    # A snapshot does its harm only as dead rows gather.
    count = jobs * 3 if condition.held_snapshot else jobs
    reset(url, condition)
    with snapshot_held(url, condition.held_snapshot):
        return drain(WorkerCommand(url), fill(url, "noop", count), count).rate


def measure_two_processes(bench: Bench) -> list[Result]:
    """Measure `holdfast worker --processes 2`, and two limit loops in turn."""
    jobs = bench.scale.jobs * 2
    with bench.server.database() as url:
        command = WorkerCommand(url, options=("--processes", "2"))
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": lambda: drain_anew(command, jobs).rate,
                "baseline": lambda: _two_limit_loops(url, jobs),
            },
        )
    return [
        contest.result(
            "drain_two_processes", "jobs/s", against="two limit loops", floor=0.6, goal=0.8
        )
    ]


def drain_anew(command: WorkerCommand, jobs: int) -> DrainResult:
    """Drain a new backlog, spread over all types of the command."""
    reset(command.url)
    return drain(command, fill(command.url, command.types, jobs), jobs)


def _two_limit_loops(url: str, jobs: int) -> float:
    with LimitLoop(url) as loop:
        loop.create()
        loop.start(jobs)
    command = [sys.executable, "-m", "holdfast_bench.baselines", "drain", url]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    spans = [each.communicate()[0].split() for each in both]
    begun = min(float(begin) for begin, _ in spans)
    return jobs / (max(float(end) for _, end in spans) - begun)


def measure_standby(bench: Bench) -> list[Result]:
    """Drain with claims as by default and with claims that never wait, where commits wait for a standby."""
    if not bench.server.can_have_standby:
        print_info(f"skipped: drain_standby: {bench.server.name} has no synchronous standby")
        return []
    with bench.server.database() as url, bench.server.synchronous_standby():

        def drain_with(**settings: str) -> float:
            return drain_anew(WorkerCommand(url, settings=settings), bench.scale.jobs).rate

        contest = Contest(
            bench.scale.side_rounds,
            {"ours": drain_with, "baseline": lambda: drain_with(HOLDFAST_CLAIMS="lazy")},
        )
    return [contest.result("drain_standby", "jobs/s", against="lazy claims", floor=0.8, goal=0.9)]


def measure_many_types(bench: Bench) -> list[Result]:
    """Drain the same number of jobs of one type and of many, in turn."""
    with bench.server.database() as url:

        def drain_with(types: int) -> float:
            return drain_anew(WorkerCommand(url, numbered_types(types)), bench.scale.jobs).rate

        contest = Contest(
            bench.scale.rounds,
            {"ours": lambda: drain_with(MANY), "baseline": lambda: drain_with(1)},
        )
    return [contest.result("drain_200_types", "jobs/s", against="one type", floor=0.7, goal=0.9)]


def measure_keys(bench: Bench) -> list[Result]:
    """Drain jobs of which three of each key run at once, and jobs without limits, in turn."""
    wanted = {name: each for name, each in KEYS.items() if name in bench.wanted}
    with bench.server.database() as url:

        def by_keys(keys: int | None) -> float:
            jobs = bench.scale.keys if keys is None else bench.scale.jobs
            reset(url)
            backlog = fill_keys(url, jobs, keys or jobs)
            return drain(WorkerCommand(url, (KEYED,)), backlog, jobs).rate

        contest = Contest(
            bench.scale.side_rounds,
            {
                "plain": lambda: drain_anew(WorkerCommand(url), bench.scale.jobs).rate,
                **{name: lambda keys=keys: by_keys(keys) for name, (keys, _, _) in wanted.items()},  # type: ignore[misc]
            },
        )
    return [
        contest.result(
            name, "jobs/s", ours=name, baseline="plain", against="no limits", floor=floor, goal=goal
        )
        for name, (_, floor, goal) in wanted.items()
    ]
