"""What jobs and workers cost besides time: log lines, idling, write-ahead log, chains, memory."""

from __future__ import annotations

import statistics
import time
from contextlib import closing

import psycopg

from holdfast_bench.baselines import LimitLoop
from holdfast_bench.handwritten import SQL
from holdfast_bench.measurement import Bench, Contest, FigureTarget, Result, make_result
from holdfast_bench.seeding import LoadCondition, reset, seed, seeded_database
from holdfast_bench.servers import session_seconds
from holdfast_bench.subject import (
    RunningWorker,
    WorkerCommand,
    drain,
    open_progress,
    wait_for,
    wait_for_all,
)
from holdfast_bench.workload import CHILDREN, KEYED, BacklogIds, fill, fill_keys, make_app

IDLE_BESIDE = LoadCondition("idle", delayed=1_000_000, unhandled=1_000_000)
STEPS = 3
FAN_JOBS = CHILDREN + 2
SETTLE_S = 5.0
MINUTE_MS = 60_000
MIB = 2**20
LOOK_S = 0.05


def measure_log(bench: Bench) -> list[Result]:
    """Measure the worker's processor time a job at the default log level less that at error, and once at debug."""
    jobs = bench.scale.jobs
    with bench.server.database() as url:

        def worker_us(*options: str) -> float:
            reset(url)
            backlog = fill(url, "noop", jobs)
            return drain(WorkerCommand(url, options=options), backlog, jobs).worker_us

        contest = Contest(
            bench.scale.rounds,
            {
                "default": worker_us,
                "error": lambda: worker_us("--log-level", "error"),
            },
        )
        debug = worker_us("--log-level", "debug") - contest.median("error")
    pairs = zip(contest.samples["default"], contest.samples["error"], strict=True)
    cost = statistics.median(one - other for one, other in pairs)
    return [
        make_result(
            "log_per_job",
            "µs per job",
            ours=cost,
            spread=contest.spread("default"),
            beside={"worker_us": contest.median("default"), "at_debug_us": debug},
            target=FigureTarget("µs", cost, floor=8.0, goal=4.0),
        )
    ]


def measure_idle(bench: Bench) -> list[Result]:
    """Measure an idle worker beside large backlogs that are not due or that no worker handles."""
    condition, seconds = IDLE_BESIDE.scale(bench.scale.share), bench.scale.idle_seconds
    with bench.server.database() as url:
        seed(url, condition)
        reset(url, condition)
        with RunningWorker(WorkerCommand(url)) as running:
            time.sleep(SETTLE_S)
            worker, sessions = running.cpu_seconds(), session_seconds(url)
            time.sleep(seconds)
            worker = (running.cpu_seconds() - worker) / seconds
            server = _used_since(sessions, session_seconds(url))
            running.check()
    if server is None:
        return [_idle_cpu(worker, {"worker": worker * 100})] if "idle_cpu" in bench.wanted else []
    server /= seconds
    results = [_idle_cpu(worker + server, {"worker": worker * 100, "server": server * 100})]
    results.append(
        make_result(
            "idle_server",
            "ms of server CPU per minute",
            ours=server * MINUTE_MS,
            beside={"worker_ms": worker * MINUTE_MS},
            target=FigureTarget("ms", server * MINUTE_MS, floor=100, goal=60),
        )
    )
    return [each for each in results if each.name in bench.wanted]


def _idle_cpu(share: float, beside: dict[str, float]) -> Result:
    target = FigureTarget("% of a core", share * 100, floor=2.0, goal=1.0)
    return make_result("idle_cpu", "% of a core", ours=share * 100, beside=beside, target=target)


def _used_since(before: dict[int, float] | None, after: dict[int, float] | None) -> float | None:
    """Return what sessions used in between; a new one counts whole. None: the server is elsewhere."""
    if before is None or after is None:
        return None
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def measure_wal(bench: Bench) -> list[Result]:
    """Measure the write-ahead log of a job from insert to outcome: what replicas and archives must carry."""
    jobs = bench.scale.jobs
    server = bench.server
    with seeded_database(server) as url:

        def ours() -> float:
            reset(url)
            before = server.wal_bytes()
            drain(WorkerCommand(url), fill(url, "noop", jobs), jobs)
            return (server.wal_bytes() - before) / jobs

        def limit() -> float:
            with LimitLoop(url) as loop:
                loop.empty()
                before = server.wal_bytes()
                loop.start(jobs)
                loop.drain()
                return (server.wal_bytes() - before) / jobs

        contest = Contest(bench.scale.side_rounds, {"ours": ours, "limit": limit})
    target = FigureTarget("bytes", contest.median("ours"), floor=1600, goal=1250)
    return [contest.result("wal_per_job", "bytes", target=target)]


def measure_chain_step(bench: Bench) -> list[Result]:
    """Start and drain as many chains of three steps as jobs, in turn; the figure is the time of a step."""
    count = bench.scale.jobs // STEPS
    with bench.server.database() as url:
        contest = Contest(
            bench.scale.side_rounds,
            {
                "ours": lambda: _chain_seconds(url, count, STEPS) / count / STEPS * 1e6,
                "limit": lambda: _chain_seconds(url, count, 1) / count * 1e6,
            },
        )
    share = contest.ratio("ours", "limit")
    return [
        contest.result(
            "chain_step",
            "µs per step",
            against="starting and draining one job",
            target=FigureTarget("ratio", share, floor=1.2, goal=1.0),
        )
    ]


def _chain_seconds(url: str, count: int, steps: int) -> float:
    """Start and drain chains, one after the other."""
    reset(url)
    begun = time.monotonic()
    backlog = fill(url, "step", count, {"left": steps - 1})
    started = time.monotonic() - begun
    return started + drain(WorkerCommand(url, ("step",)), backlog, count * steps).span.seconds


def measure_fan(bench: Bench) -> list[Result]:
    """Measure a job that starts 1,000 chains and one that waits for them, beside as many plain jobs."""
    with bench.server.database() as url:

        def milliseconds(type: str, count: int) -> float:
            reset(url)
            backlog = fill(url, type, count)
            command = WorkerCommand(url, ("fan", "noop"))
            return drain(command, backlog, FAN_JOBS).span.seconds * 1000

        contest = Contest(
            bench.scale.side_rounds,
            {
                "ours": lambda: milliseconds("fan", 1),
                "limit": lambda: milliseconds("noop", FAN_JOBS),
            },
        )
    return [
        contest.result("fan_out_in", f"ms for 1 → {CHILDREN:,} → 1", against="as many plain jobs")
    ]


def measure_memory(bench: Bench) -> list[Result]:
    """Measure how much a worker grows after the first 10,000 jobs of a large backlog; a size needs no repetition."""
    jobs = bench.scale.memory_jobs
    with bench.server.database() as url:
        settled, grown = _growth(WorkerCommand(url), fill(url, "noop", jobs), jobs)
    return [
        make_result(
            "memory",
            f"MiB growth over {jobs:,} jobs",
            ours=grown,
            beside={"resident_mib": settled},
            target=FigureTarget("MiB", grown, floor=30, goal=10),
        )
    ]


def measure_keys_memory(bench: Bench) -> list[Result]:
    """Measure the same with a limited job of each of many keys; the sweep leaves none of their partitions."""
    keys = bench.scale.keys
    with bench.server.database() as url:
        settled, grown = _growth(WorkerCommand(url, (KEYED,)), fill_keys(url, keys, keys), keys)
        left = _sweep_partitions(url)
    if left:
        raise RuntimeError(f"{left} rows of partitions are left after the sweep")
    return [
        make_result(
            "flow_memory",
            f"MiB growth over {keys:,} keys",
            ours=grown,
            beside={"resident_mib": settled, "gates_left": left},
            target=FigureTarget("MiB", grown, floor=30, goal=10),
        )
    ]


def _growth(command: WorkerCommand, backlog: BacklogIds, jobs: int) -> tuple[float, float]:
    """Return the MiB that a worker has after the first jobs, and how many more it had at most until the last."""
    with (
        closing(open_progress(command.url, command.types)) as progress,
        RunningWorker(command) as running,
    ):
        wait_for(progress, backlog.early, running.check)
        settled = largest = running.memory_bytes()
        while not progress.has_ended(backlog.last):
            running.check()
            time.sleep(LOOK_S)
            largest = max(largest, running.memory_bytes())
        # Where keys take turns, the last one started is not the last to end.
        wait_for_all(progress, backlog.last, jobs, running.check)
    return settled / MIB, (largest - settled) / MIB


def _sweep_partitions(url: str) -> int:
    """Remove what upkeep removes once partitions were unused for a while; return how many rows are left."""
    with closing(make_app(url, (KEYED,))) as app:
        store = app.database.store
        later = app.database.run(store.schema.clock()) + 120_000_000
        after: str | None = ""
        while after is not None:
            after, _, _ = app.database.run(store.limits.sweep(after, later))
    with psycopg.connect(url) as connection:
        ((left,),) = connection.execute(SQL["gate_rows"]).fetchall()
    return int(left)
