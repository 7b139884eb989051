"""Seeds keep the laws, replay exactly, and find the defects that are planted."""

import os
import re
import subprocess
import sys

import pytest

from tests.simulation import planted

CHUNKS = 5
SEEDS = 100
"""Of each chunk: 500 in all; `make torture` runs fifty thousand."""
EVERY_TIME = [name for name, each in planted.DEFECTS.items() if not each.is_rare]


def run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the simulation in a process of its own."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, text=True, capture_output=True, check=False, env=env)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds_keep_the_laws(chunk: int) -> None:
    first = 1 + chunk * SEEDS
    done = run("--seeds", f"{first}:{first + SEEDS}", "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.match(r"(\d+) seeds, (\d+) jobs", done.stdout)
    assert found is not None
    assert int(found[1]) == SEEDS
    assert int(found[2]) >= 50 * SEEDS


def test_a_dead_process_holds_up_nobody_with_transactions_that_waited_for_the_lock() -> None:
    done = run("--seed", "522")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_an_open_transaction_has_written_has_not_ended() -> None:
    """A process was paused in the transaction that took the last event; the seed was called drained, and failed."""
    done = run("--seed", "35631")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_replays_byte_for_byte() -> None:
    first, second = (run("--seed", "9", "--trace", hash_seed=each) for each in ("1", "random"))
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert first.stdout == second.stdout
    assert "fault 3" in first.stdout


def test_a_seed_is_the_same_after_others() -> None:
    alone = [run("--seed", str(seed)).stdout.split()[-1] for seed in (8, 9)]
    program = (
        "from tests.simulation.plan import make_plan; from tests.simulation.run import simulate\n"
        "print(*(simulate(make_plan(seed)).digest for seed in (5, 7, 8, 6, 9)))"
    )
    command = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, text=True, capture_output=True, check=True, env=env)
    digests = done.stdout.split()
    assert [digests[2], digests[4]] == alone


@pytest.mark.timeout(600)
def test_planted_defects_are_found() -> None:
    """Some of them; `make torture` plants all."""
    done = run("--planted", ",".join(EVERY_TIME[::3]), "--most", "150", "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr


NOTHING_LEFT = """
import gc
from tests.simulation.plan import make_plan
from tests.simulation.run import simulate
from tests.simulation.world import World

for seed in range(10, 17):
    simulate(make_plan(seed))
# The first one ends coroutines that were thrown away, the second one takes what those had kept until then.
gc.collect()
gc.collect()
print(sum(isinstance(each, World) for each in gc.get_objects()))
"""


def test_a_run_leaves_nothing_in_memory() -> None:
    """Or the thousandth run of a process would take many times as long as the first."""
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", NOTHING_LEFT]
    done = subprocess.run(command, text=True, capture_output=True, check=False, env=env)
    # The last one is still that of the handlers.
    assert done.stdout.split() in (["0"], ["1"]), done.stdout + done.stderr


SMALLER = """
from tests.simulation import planted
from tests.simulation.plan import make_plan
from tests.simulation.run import simulate
from tests.simulation.shrink import shrink

with planted.DEFECTS["no-reaper"].planted():
    plan = next(plan for seed in range(1, 50) if simulate(plan := make_plan(seed, 10)).breaches)
    smaller = shrink(plan)
assert smaller.result.breaches
assert len(smaller.plan.jobs) < len(plan.jobs)
assert len(smaller.plan.faults) < len(plan.faults)
"""


def test_a_failing_plan_is_made_smaller() -> None:
    # In a process of its own: what is left of hundreds of aborted runs complains when it goes.
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SMALLER], text=True, capture_output=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
