"""What producers, handlers and the database say about a run with failovers, and the verdict on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

RATE_OVER_S = 3.0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A start that a producer was told is durable."""

    at: float
    id: str


@dataclass(frozen=True, slots=True)
class Handled:
    """A handler that began: when, for which job, with which fence, and on which host."""

    at: float
    id: str
    fence: int
    host: str


@dataclass(frozen=True, slots=True)
class Failover:
    """One failover: which host was lost how and when, and when a standby took writes."""

    kind: str
    lost: str
    fault_at: float
    promoted_at: float
    healed_at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures of a run; `broken` says which promises it broke."""

    acknowledged: int
    missing: int
    unhandled: int
    repeated: int
    unexplained: int
    behind_cut: int
    fences_back: int
    first_starts_s: Sequence[float]
    first_handlers_s: Sequence[float]
    starts_per_s: Sequence[float]

    def broken(self, recovery_s: float) -> list[str]:
        """Name every broken promise; clients have this long from the promotion on."""
        counts = {
            "acknowledged and lost": self.missing,
            "acknowledged and never handled": self.unhandled,
            "handled twice with no failover in between": self.unexplained,
            "started on a cut-off primary": self.behind_cut,
            "fences that did not grow": self.fences_back,
        }
        found = [f"{name}: {count}" for name, count in counts.items() if count]
        for name, seconds in (("start", self.first_starts_s), ("handler", self.first_handlers_s)):
            if not seconds or max(seconds) > recovery_s:
                found.append(f"promotion to first {name}: {[round(each, 2) for each in seconds]} s")
        return found

    def __str__(self) -> str:
        def spread(seconds: Sequence[float]) -> str:
            ordered = sorted(seconds)
            return f"median {ordered[len(ordered) // 2]:.2f} s, worst {ordered[-1]:.2f} s"

        return (
            f"{len(self.first_starts_s)} failovers, each at {min(self.starts_per_s):.0f} starts/s or more: "
            f"{self.acknowledged} acknowledged, {self.missing} lost, {self.unhandled} never handled, "
            f"{self.repeated} handled twice ({self.unexplained} of them with no failover in between), "
            f"{self.behind_cut} started on a cut-off primary, {self.fences_back} fences back; "
            f"promotion to first acknowledged start "
            f"{spread(self.first_starts_s)}, to first handler {spread(self.first_handlers_s)}"
        )


def read_acknowledged(files: Iterable[Path]) -> list[Acknowledged]:
    """Read what producers wrote."""
    words = (line.split() for file in files for line in file.read_text().splitlines())
    return [Acknowledged(float(at), id) for at, id in words]


def read_handled(files: Iterable[Path]) -> list[Handled]:
    """Read what handlers wrote, oldest first."""
    words = (line.split() for file in files for line in file.read_text().splitlines())
    found = [Handled(float(at), id, int(fence), host) for at, id, fence, host in words]
    return sorted(found, key=lambda each: each.at)


def fences_back(handled: Sequence[Handled]) -> int:
    """Count handlers whose fence is not above those of all earlier handlers of the same job."""
    highest: dict[str, int] = {}
    count = 0
    for each in handled:
        count += each.fence <= highest.get(each.id, 0)
        highest[each.id] = max(each.fence, highest.get(each.id, 0))
    return count


def judge(
    acknowledged: Sequence[Acknowledged],
    handled: Sequence[Handled],
    existing: set[str],
    failovers: Sequence[Failover],
    grace_s: float,
) -> Verdict:
    """Hold the logs against the database; handlers claimed before a cut may begin within `grace_s` of it."""
    begun: dict[str, list[float]] = defaultdict(list)
    for each in handled:
        begun[each.id].append(each.at)
    repeats = [times for times in begun.values() if len(times) > 1]
    behind = [
        each
        for each in handled
        for one in failovers
        if each.host == one.lost and one.fault_at + grace_s < each.at < one.healed_at
    ]
    return Verdict(
        acknowledged=len(acknowledged),
        missing=sum(each.id not in existing for each in acknowledged),
        unhandled=sum(each.id not in begun for each in acknowledged),
        repeated=len(repeats),
        unexplained=sum(not _is_explained(times, failovers) for times in repeats),
        behind_cut=len(behind),
        fences_back=fences_back(handled),
        first_starts_s=[_first_after(one, acknowledged, grace_s) for one in failovers],
        first_handlers_s=[
            _first_after(one, [each for each in handled if each.host != one.lost], grace_s)
            for one in failovers
        ],
        starts_per_s=[_rate_before(one, acknowledged) for one in failovers],
    )


def _is_explained(begun: Sequence[float], failovers: Sequence[Failover]) -> bool:
    """Whether no primary took writes for a time between any two handlers of a job: the first was not recorded."""
    return all(
        any(earlier < one.promoted_at and one.fault_at < later for one in failovers)
        for earlier, later in pairwise(begun)
    )


def _rate_before(failover: Failover, acknowledged: Sequence[Acknowledged]) -> float:
    since = failover.fault_at - RATE_OVER_S
    return sum(since < each.at < failover.fault_at for each in acknowledged) / RATE_OVER_S


def _first_after(
    failover: Failover, events: Sequence[Acknowledged] | Sequence[Handled], grace_s: float
) -> float:
    """Return the seconds from promotion to the first event; infinite when none came before the lost host was back."""
    times = [each.at for each in events if failover.fault_at + grace_s < each.at]
    return max(0.0, min(times, default=float("inf")) - failover.promoted_at)
