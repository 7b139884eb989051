"""Durable functions: steps of many functions and of one alone, the replay of records, and what parked ones cost others.

The limit of steps is their records written by hand: one connection, fifty rows a statement, each while the live row
that it belongs to is locked and bears its token. It claims and completes nothing, calls nothing and replays nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import msgspec
import psycopg

from holdfast.app import Holdfast
from holdfast.steps.router import ROUTED_AT_ONCE
from holdfast_bench.handwritten import SQL, uuid7
from holdfast_bench.measurement import Bench, Contest, Result, make_result
from holdfast_bench.seeding import FRESH, LoadCondition, reset, seed
from holdfast_bench.servers import BenchServer
from holdfast_bench.subject import RunningWorker, WorkerCommand, drain, open_progress, wait_for
from holdfast_bench.workload import fill, make_producer

AT_ONCE = 50
STEPS = 20
"""How many steps each of the functions has that run at once."""
RECORDS = 1_000
"""What is replayed."""
REPLAY_MS = 20
"""What that may take on a machine of today."""
WARM_UP = 20
MANY_PARKED, ALL_PARKED = 100_000, 1_000_000
FEW_WAITS = 10
BY_HAND = "records by hand"


def measure_steps(bench: Bench) -> list[Result]:
    """Measure no-op steps of fifty functions at a time, beside their records written by hand."""
    functions = max(AT_ONCE, bench.scale.jobs // STEPS)
    count, costs = functions * STEPS, dict[str, list[float]]()
    with bench.server.database() as url:
        command = WorkerCommand(url, ("steps",), ("--slots", str(AT_ONCE)))

        def ours() -> float:
            reset(url)
            backlog = fill(url, "steps", functions, {"steps": STEPS})
            before = bench.server.wal_bytes()
            drained = drain(command, backlog, functions)
            found = {
                "worker_us": drained.worker_us / STEPS,
                "server_us": drained.server_us / STEPS,
                "wal_bytes": (bench.server.wal_bytes() - before) / count,
            }
            for name, value in found.items():
                costs.setdefault(name, []).append(value)
            return drained.rate * STEPS

        contest = Contest(
            bench.scale.rounds, {"ours": ours, "baseline": lambda: append_by_hand(url, count)}
        )
    beside = {name: statistics.median(each) for name, each in costs.items()}
    return [
        contest.result("steps", "steps/s", against=BY_HAND, beside=beside, floor=0.23, goal=0.34)
    ]


def append_by_hand(url: str, count: int) -> float:
    """Write so many records by hand; return how many a second."""
    encode, token, took = msgspec.json.Encoder().encode, uuid7(), 0.0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL["step_tables"])
        for _ in range(0, count, AT_ONCE * STEPS):
            ids = [uuid7() for _ in range(AT_ONCE)]
            connection.execute(SQL["step_live"], [ids, token])
            begun = time.perf_counter()
            for number in range(STEPS):
                now = time.time_ns() // 1000
                fields = {"t": token, "n": "echo", "k": str(number), "o": str(number), "a": number}
                rows = encode([fields | {"j": id, "s": now} for id in ids]).decode()
                answer = connection.execute(SQL["step_append"], [rows], prepare=True)
                if len(answer.fetchall()) != AT_ONCE:
                    raise RuntimeError("a record was refused")
            took += time.perf_counter() - begun
    return count / took


def measure_lone_step(bench: Bench) -> list[Result]:
    """Measure one step after the other of the only function that runs, each beside a bare insert."""
    ours, bare = list[float](), list[float]()
    with bench.server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SQL["step_tables"])
        given = {"steps": bench.scale.lone_jobs + WARM_UP}
        for _ in range(bench.scale.rounds):
            ((_, output),) = _outputs(url, "lone_steps", given, 1)
            took = msgspec.json.decode(output, type=dict[str, list[float]])
            ours.append(statistics.median(took["step"][WARM_UP:]))
            bare.append(statistics.median(took["bare"][WARM_UP:]))
    return [
        make_result("step_lone", "ms", ours, bare, against="a bare insert", floor=1.4, goal=1.2)
    ]


def measure_replay(bench: Bench) -> list[Result]:
    """Measure a function that is claimed again and passes what it recorded, beside reading that by hand."""
    ours, by_hand = list[float](), list[float]()
    with bench.server.database() as url:
        for id, output in _outputs(url, "replay", {"steps": RECORDS}, bench.scale.rounds + 2):
            ours.append(float(output))
            by_hand.append(read_by_hand(url, id))
    return [
        make_result(
            "step_replay",
            "ms",
            ours,
            by_hand,
            against=BY_HAND,
            beside={"asked_ms": REPLAY_MS},
            floor=10,
            goal=5,
        )
    ]


def read_by_hand(url: str, id: str) -> float:
    """Read and decode a job's records as somebody would who only has to; return how long it took, in ms."""
    decode, took = msgspec.json.Decoder().decode, list[float]()
    found: dict[tuple[str, str, int], Any] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(5):
            begun = time.perf_counter()
            rows = connection.execute(SQL["step_rows"], [id], prepare=True).fetchall()
            found = {(row[0], row[1], row[2]): decode(row[4] or "null") for row in rows}
            took.append((time.perf_counter() - begun) * 1e3)
    if len(found) != RECORDS + 1:
        raise RuntimeError(f"{len(found)} records of {RECORDS} steps and a sleep")
    return statistics.median(took)


def _outputs(url: str, type: str, given: object, functions: int) -> list[tuple[str, str]]:
    """Run functions one after the other in one worker; return their ids and what they returned."""
    found = []
    with (
        closing(open_progress(url, (type,))) as progress,
        RunningWorker(WorkerCommand(url, (type,))) as running,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        for _ in range(functions):
            id = fill(url, type, 1, given).last
            wait_for(progress, id, running.check)
            ((output,),) = connection.execute(SQL["output_of"], [id]).fetchall()
            found.append((id, output))
    return found


def measure_parked(bench: Bench) -> list[Result]:
    """Measure the drain of no-op jobs with many parked functions of the same type beside."""
    parked = LoadCondition("parked", parked=_parked_count(bench))
    with ExitStack() as stack:

        def drain_beside(condition: LoadCondition) -> Callable[[], float]:
            url = stack.enter_context(bench.server.database())
            seed(url, condition)

            def run() -> float:
                reset(url, condition)
                jobs = bench.scale.jobs
                return drain(WorkerCommand(url), fill(url, "noop", jobs), jobs).rate

            return run

        contest = Contest(
            bench.scale.side_rounds, {"fresh": drain_beside(FRESH), "ours": drain_beside(parked)}
        )
    return [
        contest.result(
            "parked",
            "jobs/s",
            baseline="fresh",
            against="our fresh drain",
            beside={"functions": parked.parked},
            floor=0.9,
            goal=0.97,
        )
    ]


def measure_signals(bench: Bench) -> list[Result]:
    """Measure how long it takes to find the function that waits for a signal, among many and among ten."""
    with ExitStack() as stack:
        few, many = (
            stack.enter_context(_open_waits(bench.server, count))
            for count in (FEW_WAITS, _parked_count(bench))
        )
        samples = bench.scale.lone_jobs
        contest = Contest(
            bench.scale.rounds,
            {"few": lambda: few.find_ms(samples), "ours": lambda: many.find_ms(samples)},
        )
    return [
        contest.result(
            "signal_find",
            "ms",
            baseline="few",
            against=f"among {FEW_WAITS} waits",
            beside={"waits": many.count},
            floor=1.2,
            goal=1.05,
        )
    ]


def _parked_count(bench: Bench) -> int:
    count = ALL_PARKED if bench.scale.name == "full" else MANY_PARKED
    return max(FEW_WAITS, int(count * bench.scale.share))


@contextmanager
def _open_waits(server: BenchServer, count: int) -> Iterator[OpenWaits]:
    with server.database() as url, closing(make_producer(url)) as app:
        seed(url, LoadCondition("parked", parked=count))
        with psycopg.connect(url, autocommit=True) as connection:
            yield OpenWaits(app, connection, count)


class OpenWaits:
    """So many parked functions, each of which waits for a signal of its own, and nobody who would run them."""

    def __init__(self, app: Holdfast, connection: psycopg.Connection[Any], count: int) -> None:
        self._app = app
        self._connection = connection
        self.count = count

    def find_ms(self, samples: int) -> float:
        """Send signals, and route each as a worker does; return the median of how long that took."""
        took, database = list[float](), self._app.database
        for sample in range(samples + WARM_UP):
            key = str(sample % self.count + 1)
            with self._app.transaction() as tx:
                self._app.signal(tx, "approved", key=key)
            begun = time.perf_counter()
            woken = database.run(database.store.signals.route(ROUTED_AT_ONCE))
            took.append((time.perf_counter() - begun) * 1e3)
            if len(woken) != 1:
                raise RuntimeError(f"a signal for one function woke {len(woken)}")
            self._connection.execute(SQL["park_again"], [key], prepare=True)
        return statistics.median(took[WARM_UP:])
