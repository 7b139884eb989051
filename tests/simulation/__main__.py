"""Runs seeds: `python -m tests.simulation --seeds 1:500`, or one with its trace: `--seed 17 --trace`.

A failing seed is made smaller and printed with its trace. Exit 1 if one has failed.
"""

import argparse
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from holdfast.version import VERSION
from holdfast_chaos.record import put_record
from tests.simulation import planted
from tests.simulation.plan import make_plan
from tests.simulation.run import Result, simulate
from tests.simulation.shrink import shrink

MOST_SEEDS = 2_000
"""By then every planted defect is to be found."""
STORE = "Simulation"
"""Its name beside the databases of campaigns."""


class Summary(msgspec.Struct, frozen=True):
    """What came of many seeds."""

    date: str
    version: str
    first_seed: int
    seeds: int
    jobs: int
    fewest_jobs: int
    """Of a seed."""
    handlers: int
    faults: int
    fewest_faults: int
    refused: int
    failed: int
    seconds: int

    @property
    def text(self) -> str:
        """The same for people."""
        return (
            f"{self.seeds} seeds, {self.jobs} jobs, {self.handlers} handlers called, {self.faults} faults,"
            f" {self.refused} writes refused, {self.failed} failed, in {self.seconds} s"
        )


def main() -> int:
    """Do what the command line says."""
    logging.disable()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set is a part of what a seed decides.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1:501", help="first:end")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=50, help="jobs of each seed")
    parser.add_argument("--trace", action="store_true", help="print all that happened in it")
    parser.add_argument(
        "--planted", nargs="?", const="all", help="find the planted defects, or one"
    )
    parser.add_argument(
        "--most", type=int, default=MOST_SEEDS, help="seeds to look for a defect in"
    )
    parser.add_argument(
        "--within", type=float, default=math.inf, help="begin no more seeds after so many seconds"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", metavar="FILE", help="note there what came of the seeds")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    if given.seed is not None:
        return show(simulate(make_plan(given.seed, given.jobs)), given.trace)
    if given.planted is not None:
        names = list(planted.DEFECTS) if given.planted == "all" else given.planted.split(",")
        if unknown := sorted({*names} - planted.DEFECTS.keys()):
            parser.error(
                f"no defect is named {', '.join(unknown)}; there are {', '.join(planted.DEFECTS)}"
            )
        return find_planted(names, given.most, given.processes)
    first, end = (int(each) for each in given.seeds.split(":"))
    summary = run_seeds(range(first, end), given.jobs, given.processes, given.within)
    print(json.dumps(msgspec.to_builtins(summary)) if given.output == "json" else summary.text)
    if given.record is not None:
        put_record(Path(given.record), {"store": STORE, **msgspec.to_builtins(summary)})
    return 1 if summary.failed else 0


def show(result: Result, trace: bool) -> int:
    """Print one run."""
    if trace:
        print("\n".join(result.trace))
    print(f"seed {result.seed}: {result.begun} handlers, {result.faults} faults, {result.digest}")
    print("\n".join(result.breaches))
    return 1 if result.breaches else 0


def results_of(seeds: range, jobs: int, processes: int, within_s: float) -> Iterator[Result]:
    """Run seeds, several at a time, in their order; leave the others when the time is over."""
    ends_at = time.monotonic() + within_s
    pool = ProcessPoolExecutor(processes)
    try:
        for each in pool.map(partial(run_seed, jobs), seeds, chunksize=8):
            yield each
            if time.monotonic() > ends_at:
                break
    finally:
        pool.shutdown(cancel_futures=True)


def run_seed(jobs: int, seed: int) -> Result:
    """Run one seed, and return its trace only if it has failed."""
    try:
        result = simulate(make_plan(seed, jobs))
    except Exception as error:
        error.add_note(f"in seed {seed}")
        raise
    return result if result.breaches else result.without_trace()


def run_seeds(seeds: range, jobs: int, processes: int, within_s: float = math.inf) -> Summary:
    """Run seeds, as many as there is time for, and sum them up; the first that fails is made smaller."""
    began = time.monotonic()
    count = started = faults = begun = refused = 0
    fewest_jobs = fewest_faults = sys.maxsize
    failed: list[Result] = []
    for each in results_of(seeds, jobs, processes, within_s):
        count, started, faults = count + 1, started + each.jobs, faults + each.faults
        begun, refused = begun + each.begun, refused + each.refused
        fewest_jobs = min(fewest_jobs, each.jobs)
        fewest_faults = min(fewest_faults, each.faults)
        if each.breaches:
            failed.append(each)
            print(f"seed {each.seed}: {each.breaches[0]}", file=sys.stderr, flush=True)
    if failed:
        smaller = shrink(make_plan(failed[0].seed, jobs))
        print(f"seed {failed[0].seed}, made smaller:\n{smaller.text}", file=sys.stderr)
    return Summary(
        date=datetime.now(UTC).date().isoformat(),
        version=VERSION,
        first_seed=seeds.start,
        seeds=count,
        jobs=started,
        fewest_jobs=fewest_jobs,
        handlers=begun,
        faults=faults,
        fewest_faults=fewest_faults,
        refused=refused,
        failed=len(failed),
        seconds=round(time.monotonic() - began),
    )


def find_planted(names: list[str], most: int, processes: int) -> int:
    """Look for each defect from seed 1 on, and print how many seeds it took."""
    missed = 0
    with ProcessPoolExecutor(processes) as pool:
        for name, (seed, breach) in zip(
            names, pool.map(partial(find_one, most), names), strict=True
        ):
            missed += seed is None
            print(
                f"{name}: {f'not in {most}' if seed is None else seed} seeds · {breach}", flush=True
            )
    return 1 if missed else 0


def find_one(most: int, name: str) -> tuple[int | None, str]:
    """Return the first seed that finds a defect, and how."""
    for seed in range(1, most + 1):
        plan = make_plan(seed)
        with planted.DEFECTS[name].planted():
            result = simulate(plan)
        if result.breaches:
            sound = simulate(plan)
            assert not sound.breaches, f"seed {seed} fails without a defect: {sound.breaches[0]}"
            return seed, result.breaches[0]
    return None, ""


if __name__ == "__main__":
    sys.exit(main())
