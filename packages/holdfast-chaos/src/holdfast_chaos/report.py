"""The page of a campaign: one HTML file without scripts, with a timeline of faults, throughput and recoveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.core.duration import pluralize
from holdfast_chaos.campaign import CampaignResult
from holdfast_chaos.checker import LAWS, CampaignVerdict
from holdfast_chaos.faults import KINDS

WIDTH = 1_000.0
"""Of the drawings, in their own units."""

HEIGHT = 120.0
LEAST_WIDTH = 2.5
BUCKETS = 200
TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200)
MAX_TICKS = 12
MAX_ROWS = 500


class CampaignTimeline:
    """Where moments and values are in the drawings."""

    def __init__(self, result: CampaignResult) -> None:
        self._result = result
        self._begin = result.began_at
        self.seconds = max(1.0, result.ended_at - result.began_at)

    def x(self, at: float) -> float:
        """Return where a moment is."""
        return round(min(1.0, max(0.0, (at - self._begin) / self.seconds)) * WIDTH, 2)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and labels of the axis of time."""
        step = next((each for each in TICKS if self.seconds / each <= MAX_TICKS), TICKS[-1])
        count = int(self.seconds // step) + 1
        return [(self.x(self._begin + n * step), _clock(n * step)) for n in range(count)]

    def lanes(self) -> list[dict[str, Any]]:
        """Return the faults by kind, each as a bar."""
        charged = self._result.verdict.charged
        lanes: dict[str, list[dict[str, Any]]] = {}
        for fault in self._result.history.faults:
            x = self.x(fault.began_at)
            starts = charged.get(fault.number, 0)
            text = f"{fault.name} of {fault.actor or 'the database'}"
            text += f" at {_clock(fault.began_at - self._begin)}"
            bar = {
                "x": x,
                "width": max(LEAST_WIDTH, self.x(fault.ended_at) - x),
                "text": f"{text}, {fault.ended_at - fault.began_at:.2f} s, {starts} starts charged",
            }
            lanes.setdefault(fault.kind, []).append(bar)
        return [{"kind": kind, "bars": bars} for kind, bars in sorted(lanes.items())]

    def throughput(self) -> dict[str, Any]:
        """Return jobs ended and chains' jobs acknowledged per second, as lines."""
        width_s = max(1.0, self.seconds / BUCKETS)
        acked: Counter[int] = Counter()
        for each in self._result.history.acked:
            acked[int((each.at - self._begin) // width_s)] += sum(
                max(1, length) for length in each.chains.values()
            )
        ended: Counter[int] = Counter()
        for handler in self._result.history.ended:
            ended[int((handler.at - self._begin) // width_s)] += 1
        buckets = range(int(self.seconds // width_s) + 1)
        highest = max([*acked.values(), *ended.values(), 1])

        def line(counts: Counter[int]) -> str:
            points = []
            for bucket in buckets:
                x = self.x(self._begin + (bucket + 0.5) * width_s)
                points.append(f"{x},{round(HEIGHT * (1 - counts[bucket] / highest), 2)}")
            return " ".join(points)

        return {"acked": line(acked), "ended": line(ended), "most": round(highest / width_s)}

    def outages(self) -> list[dict[str, float]]:
        """Return when nobody could use the database."""
        faults = [each for each in self._result.history.faults if each.is_outage]
        spans = [(self.x(each.began_at), self.x(each.ended_at)) for each in faults]
        return [{"x": begin, "width": max(1.0, end - begin)} for begin, end in spans]

    def recoveries(self) -> dict[str, Any]:
        """Return how long jobs took to be due again, each as a dot."""
        found = self._result.verdict.recoveries
        highest = max([*(each.seconds for each in found), self._result.plan.lease_s * 1.5])
        dots = [
            {
                "x": self.x(each.at),
                "y": round(HEIGHT * (1 - max(0.0, each.seconds) / highest), 2),
                "text": f"job {each.job} after fault #{each.fault}: {each.seconds:.2f} s, "
                f"started after {each.restart_seconds:.2f} s",
            }
            for each in found
        ]
        lease = round(HEIGHT * (1 - self._result.plan.lease_s / highest), 2)
        return {"dots": dots, "most": f"{highest:.1f} s", "lease": lease}


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def law_rows(result: CampaignResult) -> Iterator[dict[str, Any]]:
    """Yield every law, whether it was judged, and what broke it."""
    broken = {each.law: each for each in result.verdict.broken}
    for name, law in LAWS.items():
        found = broken.get(name)
        not_judged = result.verdict.not_judged.get(name, "")
        yield {
            "name": name,
            "text": law.text,
            "mark": "–" if not_judged else "✗" if found else "✓",
            "not_judged": not_judged,
            "count": found.count if found else 0,
            "named": found.named if found else [],
        }


def figures_of(result: CampaignResult) -> Sequence[tuple[str, str]]:
    """Return the figures of a campaign with their names, as people read them."""
    verdict = result.verdict

    def count(value: int | None) -> str:
        return "–" if value is None else f"{value:,}"

    def seconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f} s"

    return (
        ("jobs", count(verdict.jobs)),
        ("failed jobs", count(_count_failed(verdict))),
        ("faults", f"{sum(verdict.faults.values()):,}"),
        ("lost", count(verdict.lost)),
        ("lost by failover", count(verdict.lost_by_failover)),
        ("started twice", f"{verdict.duplicates:,}, {verdict.duplicates_explained:,} explained"),
        ("fencing violations", count(verdict.fencing_violations)),
        ("refused zombie writes", f"{verdict.refused_zombie_writes:,}"),
        ("events", _count_events(result)),
        ("events lost", count(verdict.events_lost)),
        ("events taken twice", count(verdict.events_twice)),
        ("events out of order", count(verdict.events_out_of_order)),
        ("refused writes of consumers", count(verdict.refused_lines)),
        ("recovery p50", seconds(verdict.recovery_p50_s)),
        ("recovery p99", seconds(verdict.recovery_p99_s)),
        ("restart p50", seconds(verdict.restart_p50_s)),
        ("restart p99", seconds(verdict.restart_p99_s)),
        ("restart p99, with a free worker", seconds(verdict.free_restart_p99_s)),
    )


def summarize(result: CampaignResult) -> str:
    """Return the verdict in a line. Jobs that failed by their own handlers break no law, and are named with it."""
    line = f"{result.verdict.verdict}, with seed {result.plan.seed} on {result.store}"
    failed, by_handlers = _count_failed(result.verdict), result.verdict.failed_by_handlers
    if not failed:
        return line
    share = "" if failed == by_handlers else f", {by_handlers:,} of them"
    whose = "its own handler" if failed == 1 else "their own handlers"
    return f"{line}; {pluralize(failed, 'job')} failed{share} by {whose}"


def notes_on(result: CampaignResult) -> Iterator[str]:
    """Yield what is to be known with the verdict: what was not started, why nothing was shown, what is away."""
    if result.not_started:
        yield f"not started: {', '.join(result.not_started)}; give --input TYPE=JSON for each"
    for reason in result.verdict.reasons:
        yield f"unknown because {reason}"
    if result.away_since is not None:
        since = _clock(max(0.0, result.away_since - result.began_at))
        waited_s = result.ended_at - result.away_since
        yield f"the database has not answered since {since}, and was given up after {waited_s:.0f} s"


def gaps_of(result: CampaignResult) -> Iterator[str]:
    """Yield why laws were not judged, those with the same reason together."""
    laws: dict[str, list[str]] = {}
    for law, reason in result.verdict.not_judged.items():
        laws.setdefault(reason, []).append(law)
    for reason, names in laws.items():
        yield f"{', '.join(names)}, because {reason}"


def _count_failed(verdict: CampaignVerdict) -> int | None:
    return None if verdict.failed is None else sum(verdict.failed.values())


def _count_events(result: CampaignResult) -> str:
    """Return how many events were taken, and lost with an asynchronous primary."""
    if result.verdict.events is None:
        return "–"
    lost = result.verdict.events_lost_by_failover
    return f"{result.verdict.events:,}" + (f", {lost:,} lost by failover" if lost else "")


def render_page(result: CampaignResult) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("holdfast_chaos"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    line = CampaignTimeline(result)
    faults = result.history.faults[:MAX_ROWS]
    return environment.get_template("campaign.html").render(
        result=result,
        verdict=result.verdict,
        summary=summarize(result),
        notes=list(notes_on(result)),
        gaps=list(gaps_of(result)),
        figures=figures_of(result),
        laws=list(law_rows(result)),
        lanes=line.lanes(),
        ticks=line.ticks(),
        throughput=line.throughput(),
        outages=line.outages(),
        recoveries=line.recoveries(),
        faults=[
            (fault, _clock(fault.began_at - result.began_at), fault.ended_at - fault.began_at)
            for fault in faults
        ],
        left_out=len(result.history.faults) - len(faults),
        kinds={name: kind.text for name, kind in KINDS.items()},
        width=WIDTH,
        height=HEIGHT,
    )


def write_page(result: CampaignResult, file: Path) -> None:
    """Write the page to a file."""
    file.write_text(render_page(result), encoding="utf-8")
