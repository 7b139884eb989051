"""One job type in figures: what it did over a window, how long its jobs ran and waited, the slowest and latest ones.

All reads are bounded: counts come from the tally, times from a sample of the newest jobs that ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.admin.access import Caller, Gateway, NounAdmin
from holdfast.admin.serializers import plain, rfc3339, without_payloads
from holdfast.admin.types import TypeFacts, type_facts
from holdfast.commands.workers import unknown_type
from holdfast.core.instants import Instant
from holdfast.core.records import JobRecord
from holdfast.core.statistics import STEPS_MS, FinishedJob, SeriesPoint, Window, quantile
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.pagination import JobQuery

SAMPLED = 2_000
SAMPLE_LOOK = 10_000
"""Times are measured on this many ended jobs of the type, among so many of all."""

SLOWEST = 10
LATEST = 10
LATEST_LOOK = 2_500
"""Jobs shown, and the newest of all among which the latest are looked for."""

SAMPLE_LASTS_US = 10_000_000
MAX_SAMPLES = 50

WEEK_MS, HOUR_MS = 7 * 86_400_000, 3_600_000
"""The week is shown by the hour; the tally keeps hours for a little longer."""

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Sample(msgspec.Struct, frozen=True):
    """What ended jobs of a type say of it and its week by the hour, as they were read at some time.

    Times are quantiles, in microseconds, of how long jobs ran and waited; the slowest ran the longest.
    """

    read_at: Instant
    size: int
    times: dict[str, dict[str, int | None]]
    slowest: list[FinishedJob]
    week: tuple[SeriesPoint, ...]


def make_sample(
    read_at: Instant, jobs: Sequence[FinishedJob], week: Iterable[SeriesPoint]
) -> Sample:
    """Work out once what every refresh of the next seconds shows."""
    times = {
        "run": quantiles([each.ran_us for each in jobs]),
        "wait": quantiles([each.waited_us for each in jobs]),
    }
    slowest = sorted(jobs, key=lambda each: -(each.ran_us or 0))[:SLOWEST]
    return Sample(read_at, len(jobs), times, slowest, tuple(week))


class TypeBoard(msgspec.Struct, frozen=True):
    """What the page of a type shows."""

    facts: TypeFacts
    window: Window
    series: list[SeriesPoint]
    sample: Sample
    latest: list[JobRecord]

    @property
    def error_rate(self) -> float | None:
        """The share of the jobs ended within the window that failed; None when none ended."""
        completed = sum(each.completed for each in self.series)
        failed = max(0, sum(each.failed for each in self.series))
        return failed / (completed + failed) if completed + failed else None

    def as_json(self) -> dict[str, Any]:
        """Return the figures for programs."""
        return {
            **self.facts.as_json(),
            "at": rfc3339(self.facts.now),
            "window": self.window,
            "error_rate": self.error_rate,
            "times_us": self.sample.times,
            "sampled": self.sample.size,
            "series": [plain(each) for each in self.series],
            "week": [plain(each) for each in self.sample.week],
            "slowest": [
                {**plain(each), "ran_us": each.ran_us, "waited_us": each.waited_us}
                for each in self.sample.slowest
            ],
            "latest": [without_payloads(each) for each in self.latest],
        }


def quantiles(values: Sequence[int | None]) -> dict[str, int | None]:
    """Return p50, p95 and p99 of those that are known."""
    ordered = sorted(each for each in values if each is not None)
    return {name: quantile(ordered, share) for name, share in SHARES.items()}


def read_type_board(
    store: Store, type: str, window: Window, sample: Sample | None = None
) -> Op[TypeBoard]:
    """Read a type in figures; a sample that is new enough is taken as it is. Raises: UnknownJobType."""
    known = yield from type_facts(store, type)
    if type not in known:
        raise unknown_type(type, known)
    facts = known[type]
    span_ms, step_ms = STEPS_MS[window]
    series = yield from store.statistics.series(span_ms, step_ms, type=type)
    if sample is None:
        jobs = yield from store.statistics.finished(type, SAMPLED, SAMPLE_LOOK)
        week = yield from store.statistics.series(WEEK_MS, HOUR_MS, type=type)
        sample = make_sample(facts.now, jobs, week)
    latest = yield from store.jobs.walk(JobQuery(limit=LATEST, types=(type,)), LATEST_LOOK)
    return TypeBoard(facts, window, series, sample, latest.records)


class TypeBoards(NounAdmin):
    """Reads types in figures; a sample serves the refreshes of the next seconds too."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._samples: dict[str, Sample] = {}

    async def get(self, caller: Caller, type: str, window: Window = "1h") -> TypeBoard:
        """Read one type over a window. Raises: UnknownJobType."""
        sample = self._samples.pop(type, None)
        if sample is not None and time.time_ns() // 1000 - sample.read_at > SAMPLE_LASTS_US:
            sample = None
        board = await self._gateway.read(
            caller, "type.list", lambda store: read_type_board(store, type, window, sample)
        )
        self._samples[type] = board.sample
        if len(self._samples) > MAX_SAMPLES:
            del self._samples[next(iter(self._samples))]
        return board
