"""The parts of `make torture`, in two lanes that run beside one another, and those of `make lasting`.

Campaigns of faults come one after the other, because each measures recoveries: 38 minutes of faults, and some to start
and to drain. One fills a disk, in a mount namespace of its own, and is left out where none can be mounted. Seeds of the
simulation take what is left of the processors, and end shortly before the hour, however many they are by then:
`figures` says what is missing.

A minute of the campaign on PostgreSQL takes 40 to 50 s of processor time, so that they take half an hour of the
two hours that two processors have in one; a seed takes 0.12 s. Tests that take long would leave too little to the
seeds, and run by themselves, wherever they are.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PYTEST = (sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal")
CHAOS = (sys.executable, "-m", "holdfast", "chaos", "-o", "json")
SIMULATION = (sys.executable, "-m", "tests.simulation")

DISK = "/mnt"
"""Where the small disk is mounted: only the part itself sees it, and it is gone with it."""

MOUNT = ("mount", "-t", "tmpfs", "-o", "size=512m", "none", DISK)
ON_A_SMALL_DISK = ("unshare", "--mount", "sh", "-c", f'{shlex.join(MOUNT)} && exec "$@"', "sh")

FILLED = ("--postgres", "--disk", DISK, "--every", "2")

MARKED = ("-m", "lasting", "tests", "apps")
"""No folders are named, so that none is forgotten."""

DEEPER = ("tests/contract/test_interleavings.py", "tests/model")
LARGER = (
    "tests/contract/test_postgres_limit_costs.py",
    "tests/contract/test_sqlite_limit_costs.py",
)
SEEDS = 50_000
SEEDS_S = 3_400.0
"""With what the planted defects take after them, an hour: they take half as long once the campaigns are over."""
SHORTEST_S = 20.0


class Part(NamedTuple):
    """One command, and what it is told."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = {}
    nice: int = 0

    @property
    def has_small_disk(self) -> bool:
        """Whether it can be run only where a small disk can be mounted."""
        return self.words[: len(ON_A_SMALL_DISK)] == ON_A_SMALL_DISK

    @property
    def again(self) -> tuple[str, ...] | None:
        """What to run with nothing beside it if it has failed: the tests that did. Campaigns and seeds stand."""
        if self.words[: len(PYTEST)] != PYTEST:
            return None
        return (*self.words, "--last-failed", "--last-failed-no-failures", "none")


def may_mount() -> bool:
    """Whether a small disk can be mounted: root may, on Linux, unless a container forbids it."""
    words = (*ON_A_SMALL_DISK, "true")
    return shutil.which(words[0]) is not None and not subprocess.call(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def make_lanes(scale: float, seed: int, record: str | None) -> Sequence[Sequence[Part]]:
    """Return the lanes; with a smaller scale, campaigns are shorter and seeds fewer."""
    recorded = () if record is None else ("--record", record)

    def campaign(name: str, seconds: float, *words: str, within: tuple[str, ...] = ()) -> Part:
        lasting = ("--seconds", str(max(SHORTEST_S, seconds * scale)), "--seed", str(seed))
        kept = ("--keep", f"build/torture/campaign-{name}")
        return Part(f"campaign-{name}", (*within, *CHAOS, *words, *lasting, *kept, *recorded))

    def seeds(name: str, *words: str) -> Part:
        return Part(name, (*SIMULATION, *words), nice=19)

    within = ("--within", str(max(SHORTEST_S, SEEDS_S * scale)))
    range = f"1:{1 + int(SEEDS * scale)}"
    return (
        (
            # A machine that keeps up makes 120,000 jobs and 1,200 faults in all of these.
            campaign("postgres", 1_800, "--postgres", "--rate", "65", "--every", "1.7"),
            campaign("standby", 150, "--standby", "sync", "--every", "2"),
            campaign("standby-async", 90, "--standby", "async", "--every", "2"),
            campaign("full-disk", 90, *FILLED, within=ON_A_SMALL_DISK),
            campaign("sqlite", 150),
        ),
        (
            seeds("seeds", "--seeds", range, *within, "-o", "json", *recorded),
            seeds("planted", "--planted"),
        ),
    )


def make_lasting() -> Sequence[Part]:
    """Return the tests that take long, which have the machine to themselves."""

    def tests(name: str, *words: str, **environment: str) -> Part:
        cache = ("-o", f"cache_dir=build/torture/{name}.cache")
        return Part(name, (*PYTEST, "--timeout", "1800", *cache, *words), environment)

    return (
        tests("marked", *MARKED),
        tests("deeper", *DEEPER, HOLDFAST_INTERLEAVING_STEPS="6", HOLDFAST_MODEL_EXAMPLES="300"),
        tests("larger", *LARGER, HOLDFAST_SATURATED_JOBS="1000000", HOLDFAST_TURNS="20000"),
    )
