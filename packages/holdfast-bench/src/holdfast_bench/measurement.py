"""What a figure is: ours beside a baseline taken in the same run, how far runs differed, and what was aimed at."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from holdfast_bench.servers import BenchServer

Verdict = Literal["goal", "floor", "below"]


class Result(msgspec.Struct, frozen=True):
    """One figure. `spread` is (largest − smallest) / median of our runs; `ratio` the median of each round's ratio.

    Floor and goal are of the ratio; where there is no baseline, of our own count (bytes, rows, statements). A goal
    below its floor means that less is better.
    """

    name: str
    unit: str
    ours: float
    baseline: float | None = None
    against: str = ""
    ratio: float | None = None
    spread: float = 0.0
    beside: dict[str, float] = {}
    floor: float | None = None
    goal: float | None = None
    verdict: Verdict | None = None
    server: str = ""

    @property
    def held(self) -> float:
        """The value that floor and goal are of."""
        return self.ours if self.ratio is None else self.ratio


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    name: str
    rounds: int
    side_rounds: int
    """Rounds of figures that are seldom in question, and of other queues."""
    jobs: int
    share: float
    """The share of the rows that lie beside the measured ones."""
    finished: int
    lone_jobs: int
    """Jobs that come one by one."""
    memory_jobs: int
    visits: int
    """Visits to each page of the dashboard."""
    idle_seconds: float
    steady_seconds: float
    peer_seconds: float
    """Roughly how long each peer drains."""
    invoices: int = 100
    """Invoices that the invoicing application issues."""
    tenders: int = 1_000
    """Tenders that the tenders application matches."""
    devices: int = 10_000
    """Devices that each of them is matched to."""
    keys: int = 100_000
    """Keys of which each has one limited job."""


TINY = Scale("tiny", 1, 1, 2_000, 0.002, 2_000, 20, 12_000, 2, 2.0, 4.0, 0.1, 6, 5, 50, 2_000)
QUICK = Scale(
    "quick", 1, 1, 10_000, 0.02, 20_000, 100, 30_000, 5, 5.0, 15.0, 1.0, 20, 100, 1_000, 10_000
)
USUAL = Scale("usual", 3, 2, 30_000, 1.0, 500_000, 400, 300_000, 15, 30.0, 60.0, 3.0)
FULL = Scale("full", 5, 5, 100_000, 1.0, 10_000_000, 1_000, 1_000_000, 40, 60.0, 3_600.0, 10.0)


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the bench: how much it measures, which figures were asked for, and where."""

    scale: Scale
    wanted: frozenset[str]
    place: BenchServer | None

    @property
    def server(self) -> BenchServer:
        """The server of figures that need one."""
        assert self.place is not None
        return self.place


class Contest:
    """Several contenders measured in turn, so that whatever else the machine does meets all of them."""

    def __init__(self, rounds: int, contenders: Mapping[str, Callable[[], float]]) -> None:
        self.samples: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(rounds):
            names = list(contenders)
            for name in names if number % 2 == 0 else reversed(names):
                self.samples[name].append(contenders[name]())

    def median(self, name: str) -> float:
        """The median of one contender."""
        return statistics.median(self.samples[name])

    def result(
        self,
        name: str,
        unit: str,
        *,
        ours: str = "ours",
        baseline: str = "baseline",
        against: str = "limit loop",
        beside: Mapping[str, float] | None = None,
        floor: float | None = None,
        goal: float | None = None,
    ) -> Result:
        """Make the result of one contender against another."""
        return make_result(
            name,
            unit,
            self.samples[ours],
            self.samples[baseline],
            against=against,
            beside=beside,
            floor=floor,
            goal=goal,
        )


def make_result(
    name: str,
    unit: str,
    ours: list[float],
    baseline: list[float] | None = None,
    *,
    against: str = "",
    beside: Mapping[str, float] | None = None,
    floor: float | None = None,
    goal: float | None = None,
) -> Result:
    """Make a result from the rounds of ours and of the baseline, with its verdict and figures a reader can take in.

    The ratio is the median of the rounds' ratios: neighbours in time met the same machine.
    """
    median = statistics.median(ours)
    result = Result(
        name=name,
        unit=unit,
        ours=_round_figure(median),
        baseline=None if baseline is None else _round_figure(statistics.median(baseline)),
        against=against,
        ratio=None
        if baseline is None
        else round(
            statistics.median(one / two for one, two in zip(ours, baseline, strict=True)), 3
        ),
        spread=round((max(ours) - min(ours)) / (median or 1.0), 3),
        beside={key: _round_figure(value) for key, value in (beside or {}).items()},
    )
    if floor is None or goal is None:
        return result
    return hold_to(result, floor, goal, less_is_better=goal < floor)


def hold_to(result: Result, floor: float, goal: float, *, less_is_better: bool) -> Result:
    """Judge a result by a floor that it must keep and a goal that it should reach."""
    sign = -1 if less_is_better else 1
    reached: Verdict = "below"
    if sign * result.held >= sign * goal:
        reached = "goal"
    elif sign * result.held >= sign * floor:
        reached = "floor"
    return msgspec.structs.replace(result, floor=floor, goal=goal, verdict=reached)


def _round_figure(value: float) -> float:
    return round(value) if abs(value) >= 100 else round(value, 3)
