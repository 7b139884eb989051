"""The dashboard beside ten thousand and a million jobs, and what open dashboards take from a worker."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from holdfast_bench.dashboard_process import OpenPage, ServedDashboard, visit
from holdfast_bench.job_history import CYCLE, MANIFEST, RARE_TYPE, SCHEDULE, TYPES, seed_history
from holdfast_bench.measurement import Bench, Contest, Result, make_result
from holdfast_bench.subject import WorkerCommand, drain
from holdfast_bench.workload import KEYED, fill, migrate

OPEN: Final = ("/", "/jobs", "/types")
FEW, MANY = 10_000, 1_000_000
REFRESHES = 10
SHARE = 0.95
SLOWEST = 5
"""How many of the slowest pages are named."""

FILTERS: Final = (
    *("state:failed", "state:running", "state:pending", "state:blocked", "state:completed"),
    *("type:mail.*", "error:domain", "fingerprint:timeout", "age>23h", "age<10m", "key:order-1"),
)
WHOLE: Final = {
    **{
        path.strip("/") or "overview": path for path in ("/", "/jobs", "/chains", "/dead", "/types")
    },
    **{path.strip("/"): path for path in ("/workers", "/cycles", "/audit", "/system", "/tail")},
    "one type": f"/types/{TYPES[0]}",
    "rare type": f"/types/{RARE_TYPE}",
    "limited type": f"/types/{KEYED}",
    "all workers": "/workers?all=yes",
    "one cycle": f"/cycles/{CYCLE}",
    "start": "/start",
    "start of a type": f"/start?type={TYPES[0]}",
    "start like a job": "/start?like={id}",
    "one job": "/jobs/{id}",
    "one chain": "/chains/{id}",
    "one chain as a tree": "/chains/{id}?view=tree",
    "one chain in time": "/chains/{id}?view=time",
    "streams": "/streams",
    "schedules": "/schedules",
    "groups": "/groups",
    "one schedule": f"/schedule?name={SCHEDULE}",
    "form of a schedule": f"/schedule/form?name={SCHEDULE}",
    "archive": "/archive",
    "one manifest": f"/archive/{MANIFEST}",
    "api one type": f"/api/v1/types/{TYPES[0]}/statistics",
    "api limits": "/api/v1/limits",
    **{f"jobs {filter}": f"/jobs?filter={quote(filter)}" for filter in FILTERS},
    "api jobs": "/api/v1/jobs?limit=200",
    "api chains": "/api/v1/chains?limit=200",
    "api dead letters": "/api/v1/dead-letters",
    "api types": "/api/v1/types",
    "api overview": "/api/v1/overview",
    "metrics": "/metrics",
}
SEARCHES: Final = (
    *("type:none.*", f"type:{RARE_TYPE}", 'error:"no such text"', "worker:w-9", "attempt>=3"),
    *("state:completed worker:w-9", "timeout", '"no such text"'),
)
REFRESHED: Final = ("/", "/jobs", "/dead", "/types", f"/types/{TYPES[0]}", "/workers", "/cycles")


def measure_pages(bench: Bench) -> list[Result]:
    """Measure every page and list on PostgreSQL."""
    with _on_postgres(bench) as (few, many):
        return _measure_pages("pages", bench, few, many)


def measure_sqlite_pages(bench: Bench) -> list[Result]:
    """Measure every page and list on SQLite."""
    with _on_sqlite(bench) as (few, many):
        return _measure_pages("pages_sqlite", bench, few, many)


def _many(bench: Bench) -> int:
    return max(5 * FEW, int(MANY * bench.scale.share))


@contextmanager
def _on_postgres(bench: Bench) -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        few = stack.enter_context(bench.server.database())
        many = stack.enter_context(bench.server.database())
        seed_history(few, FEW)
        seed_history(many, _many(bench))
        bench.server.restart()
        yield few, many


@contextmanager
def _on_sqlite(bench: Bench) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        few, many = (f"sqlite:///{Path(folder) / name}.db" for name in ("few", "many"))
        for url, count in ((few, FEW), (many, _many(bench))):
            migrate(url)
            seed_history(url, count)
        yield few, many


class _Pair:
    """The same dashboard beside few and beside many jobs, visited in turn."""

    def __init__(self, few: ServedDashboard, many: ServedDashboard) -> None:
        self._browsers = (few.connect(), many.connect())
        self.many = many

    def ms(self, path: str) -> tuple[float, float]:
        """Visit both; return how long each took."""
        few, many = (self._ms(number, path) for number in (0, 1))
        return few, many

    def _ms(self, number: int, path: str) -> float:
        answer = visit(self._browsers[number], self._fill_ids(number, path))
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:200]!r}")
        return answer.seconds * 1000

    def _fill_ids(self, number: int, path: str) -> str:
        """Put the id of a failed job where a path asks for one."""
        if "{id}" not in path:
            return path
        answer = visit(self._browsers[number], "/api/v1/jobs?filter=state:failed&limit=1")
        return path.replace("{id}", msgspec.json.decode(answer.body)["items"][0]["id"])

    def cpu_ms(self, paths: Sequence[str], times: int, *, live: bool) -> dict[str, float]:
        """Visit the pages beside many jobs, or refresh them as open ones do; return the server's time for each."""
        spent = dict.fromkeys(paths, 0.0)
        for _ in range(times):
            for path in paths:
                before = self.many.cpu_seconds()
                visit(self._browsers[1], path, live=live)
                spent[path] += (self.many.cpu_seconds() - before) * 1000 / times
        return spent


def _measure_pages(name: str, bench: Bench, few: str, many: str) -> list[Result]:
    searches = {f"search {each}": f"/jobs?filter={quote(each)}" for each in SEARCHES}
    paths = WHOLE | searches
    with ServedDashboard(few) as small, ServedDashboard(many) as large:
        pair = _Pair(small, large)
        times: dict[str, list[tuple[float, float]]] = {label: [] for label in paths}
        # The first visit finds nothing in memory.
        for _ in range(bench.scale.visits + 1):
            for label, path in paths.items():
                times[label].append(pair.ms(path))
        whole = pair.cpu_ms(REFRESHED, REFRESHES, live=False)
        refresh = pair.cpu_ms(REFRESHED, REFRESHES, live=True)
    beside_few, beside_many = (
        {label: _p95([each[place] for each in taken[1:]]) for label, taken in times.items()}
        for place in (0, 1)
    )
    listed = dict.fromkeys(searches, beside_many["jobs"])
    pages = {label: beside_many[label] for label in WHOLE}
    found = {label: beside_many[label] for label in searches}
    return [
        worst_page(f"{name}: pages", "ms p95", pages, beside_few, "with 10 k jobs", 2.0, 1.5),
        worst_page(f"{name}: searches", "ms p95", found, listed, "the list of jobs", 5.0, 2.0),
        worst_page(f"{name}: refresh", "ms of CPU", refresh, whole, "the whole page", 1.25, 1.0),
    ]


def worst_page(
    name: str,
    unit: str,
    ours: Mapping[str, float],
    baseline: Mapping[str, float],
    against: str,
    floor: float,
    goal: float,
) -> Result:
    """Make a result of the page whose ratio is the largest; the slowest ones are named beside."""
    worst = max(ours, key=lambda each: ours[each] / baseline[each])
    slowest = sorted(ours, key=lambda each: ours[each], reverse=True)[:SLOWEST]
    return make_result(
        name,
        unit,
        [ours[worst]],
        [baseline[worst]],
        against=against,
        beside={f"worst {worst}": ours[worst]} | {each: ours[each] for each in slowest},
        floor=floor,
        goal=goal,
    )


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=round(1 / (1 - SHARE)), method="inclusive")[-1]


def measure_open_dashboards(bench: Bench) -> list[Result]:
    """Drain with and without three open dashboards, in turn."""
    from holdfast_bench.seeding import reset

    jobs = bench.scale.jobs * 2
    refreshes = [0]
    with bench.server.database() as url:

        def drain_beside(pages: Sequence[str]) -> float:
            reset(url)
            backlog = fill(url, "noop", jobs)
            with _kept_open(url, pages) as opened:
                found = drain(WorkerCommand(url), backlog, jobs).rate
            refreshes[0] += sum(each.refreshes for each in opened)
            return found

        contest = Contest(
            bench.scale.side_rounds,
            {"with": lambda: drain_beside(OPEN), "without": lambda: drain_beside(())},
        )
    if not refreshes[0]:
        raise RuntimeError("the dashboards were never refreshed")
    return [
        contest.result(
            "drain_with_dashboards",
            "jobs/s",
            ours="with",
            baseline="without",
            against="no dashboard open",
            floor=0.9,
            goal=0.97,
        )
    ]


@contextmanager
def _kept_open(url: str, pages: Sequence[str]) -> Iterator[list[OpenPage]]:
    """Serve the dashboard and keep pages open on it; without pages nothing is served."""
    if not pages:
        yield []
        return
    with ServedDashboard(url) as dashboard, ExitStack() as stack:
        yield [stack.enter_context(OpenPage(dashboard, path)) for path in pages]
