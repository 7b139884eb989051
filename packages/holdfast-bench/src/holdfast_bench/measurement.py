"""What a figure is: ours beside a limit taken in the same run, how far runs differed, and what was aimed at."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from holdfast_bench.servers import BenchServer

Verdict = Literal["goal", "floor", "below"]


class FigureTarget(msgspec.Struct, frozen=True):
    """A measured value with the floor it must keep and the goal it should reach."""

    of: str
    value: float
    floor: float
    goal: float

    @property
    def verdict(self) -> Verdict:
        """What was reached; a goal below its floor means that less is better."""
        sign = 1 if self.goal >= self.floor else -1
        if sign * self.value >= sign * self.goal:
            return "goal"
        return "floor" if sign * self.value >= sign * self.floor else "below"


class Result(msgspec.Struct, frozen=True):
    """One figure. `spread` is (largest − smallest) / median of our runs; `ratio` the median of each round's ratio."""

    name: str
    ours: float
    limit: float | None
    ratio: float | None
    unit: str
    spread: float
    against: str = ""
    beside: dict[str, float] = {}
    target: FigureTarget | None = None
    verdict: Verdict | None = None
    server: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    name: str
    rounds: int
    side_rounds: int
    """Rounds of figures that are seldom in question."""
    jobs: int
    share: float
    """The share of the rows that lie beside the measured ones."""
    finished: int
    latency_samples: int
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


TINY = Scale("tiny", 1, 1, 2_000, 0.002, 2_000, 20, 12_000, 2, 2.0, 4.0, 0.1, 6, 5, 50, 12_000)
QUICK = Scale("quick", 3, 1, 20_000, 0.05, 50_000, 60, 40_000, 10, 15.0, 60.0, 2.0, tenders=100)
USUAL = Scale("usual", 5, 3, 50_000, 1.0, 500_000, 400, 1_000_000, 40, 60.0, 180.0, 4.0)
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

    def spread(self, name: str) -> float:
        """How far one contender's runs differed, relative to their median."""
        samples = self.samples[name]
        return (max(samples) - min(samples)) / (self.median(name) or 1.0)

    def ratio(self, name: str, other: str) -> float:
        """The median of the rounds' ratios: neighbours in time met the same machine."""
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        return statistics.median(one / two for one, two in pairs)

    def result(
        self,
        name: str,
        unit: str,
        *,
        ours: str = "ours",
        limit: str | None = "limit",
        against: str = "limit loop",
        beside: Mapping[str, str] | None = None,
        target: FigureTarget | None = None,
    ) -> Result:
        """Make the result of one contender against another; `beside` maps labels to others."""
        shown = {label: self.median(each) for label, each in (beside or {}).items()}
        return make_result(
            name,
            unit,
            ours=self.median(ours),
            limit=None if limit is None else self.median(limit),
            ratio=None if limit is None else self.ratio(ours, limit),
            spread=self.spread(ours),
            against=against if limit is not None else "",
            beside=shown,
            target=target,
        )


def make_result(
    name: str,
    unit: str,
    *,
    ours: float,
    limit: float | None = None,
    ratio: float | None = None,
    spread: float = 0.0,
    against: str = "",
    beside: Mapping[str, float] | None = None,
    target: FigureTarget | None = None,
) -> Result:
    """Make a result with its verdict and figures that a reader can take in."""
    return Result(
        name=name,
        ours=_round_figure(ours),
        limit=None if limit is None else _round_figure(limit),
        ratio=None if ratio is None else round(ratio, 3),
        unit=unit,
        spread=round(spread, 3),
        against=against,
        beside={key: _round_figure(value) for key, value in (beside or {}).items()},
        target=None
        if target is None
        else msgspec.structs.replace(target, value=round(target.value, 4)),
        verdict=None if target is None else target.verdict,
    )


def with_beside(result: Result, more: Mapping[str, float]) -> Result:
    """Add figures shown beside a result."""
    shown = {key: _round_figure(value) for key, value in more.items()}
    return msgspec.structs.replace(result, beside=result.beside | shown)


def _round_figure(value: float) -> float:
    return round(value) if abs(value) >= 100 else round(value, 3)
