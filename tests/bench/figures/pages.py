"""Every page and list beside ten thousand and a million jobs: how long it takes, and what a refresh costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from tests.bench.figure import Bench, Result, Target, make_result
from tests.bench.handlers import make_app
from tests.bench.pages_mix import RARE_TYPE
from tests.bench.pages_seed import seed_pages
from tests.bench.pages_server import Dashboard, visit

NAMES = ("pages", "pages_sqlite")
FEW, MANY = 10_000, 1_000_000
REFRESHES, REFRESH_S = 10, 1.0
SHARE = 0.95

FILTERS: Final = (
    *("state:failed", "state:running", "state:pending", "state:blocked", "state:completed"),
    *("type:mail.*", "error:domain", "fingerprint:timeout", "age>23h", "age<10m", "key:order-1"),
)
WHOLE: Final = {
    **{path.strip("/") or "overview": path for path in ("/", "/jobs", "/dead", "/types")},
    **{path.strip("/"): path for path in ("/workers", "/cycles", "/audit", "/system", "/tail")},
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
    *("state:completed worker:w-9",),
)
REFRESHED: Final = ("/", "/jobs", "/dead", "/types", "/workers", "/cycles")


def measure(bench: Bench) -> list[Result]:
    """Measure on the stores asked for, each seeded once."""
    results = []
    for name, places in (("pages", _on_postgres), ("pages_sqlite", _on_sqlite)):
        if name in bench.wanted:
            with places(bench) as (few, many), Dashboard(few) as small, Dashboard(many) as large:
                results += _measured(name, bench, _Pair(small, large))
    return results


def _many(bench: Bench) -> int:
    return max(5 * FEW, int(MANY * bench.scale.share))


@contextmanager
def _on_postgres(bench: Bench) -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        few = stack.enter_context(bench.server.database())
        many = stack.enter_context(bench.server.database())
        seed_pages(few, FEW)
        seed_pages(many, _many(bench))
        bench.server.restart()
        yield few, many


@contextmanager
def _on_sqlite(bench: Bench) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        few, many = (f"sqlite:///{Path(folder) / name}.db" for name in ("few", "many"))
        for url, count in ((few, FEW), (many, _many(bench))):
            with closing(make_app(url)) as app:
                app.migrate()
            seed_pages(url, count)
        yield few, many


class _Pair:
    """The same dashboard beside few and beside many jobs, visited in turn."""

    def __init__(self, few: Dashboard, many: Dashboard) -> None:
        self._visitors = (few.visitor(), many.visitor())
        self.many = many

    def ms(self, path: str) -> tuple[float, float]:
        """Visit both; return how long each took."""
        few, many = (self._ms(number, path) for number in (0, 1))
        return few, many

    def _ms(self, number: int, path: str) -> float:
        answer = visit(self._visitors[number], self._found(number, path))
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:200]!r}")
        return answer.seconds * 1000

    def _found(self, number: int, path: str) -> str:
        """Put the id of a failed job where a path asks for one."""
        if "{id}" not in path:
            return path
        answer = visit(self._visitors[number], "/api/v1/jobs?filter=state:failed&limit=1")
        return path.replace("{id}", msgspec.json.decode(answer.body)["items"][0]["id"])

    def refresh_cpu_ms(self, paths: Sequence[str], times: int) -> dict[str, float]:
        """Refresh open pages once a second, as they do; return the processor time of the server for each."""
        spent = dict.fromkeys(paths, 0.0)
        for _ in range(times):
            due = time.monotonic() + REFRESH_S
            for path in paths:
                before = self.many.cpu_seconds()
                visit(self._visitors[1], path, live=True)
                spent[path] += (self.many.cpu_seconds() - before) * 1000 / times
            time.sleep(max(0.0, due - time.monotonic()))
        return spent


def _measured(name: str, bench: Bench, pair: _Pair) -> list[Result]:
    whole = {**WHOLE, "one job": "/jobs/{id}", "one chain": "/chains/{id}"}
    searches = {f"search {each}": f"/jobs?filter={quote(each)}" for each in SEARCHES}
    paths = whole | searches
    cold = {label: pair.ms(path) for label, path in paths.items()}
    warm: dict[str, list[tuple[float, float]]] = {label: [] for label in paths}
    for _ in range(bench.scale.visits):
        for label, path in paths.items():
            warm[label].append(pair.ms(path))
    results = [
        _result(f"{name}: {label}", warm[label], cold[label], label in whole) for label in paths
    ]
    return [*results, _cpu(name, pair.refresh_cpu_ms(REFRESHED, REFRESHES))]


def _result(
    name: str, times: Sequence[tuple[float, float]], cold: tuple[float, float], is_compared: bool
) -> Result:
    few, many = (_p95([each[place] for each in times]) for place in (0, 1))
    target = (
        Target("× beside 10 k jobs", many / few, floor=2.0, goal=1.5)
        if is_compared
        else Target("ms", many, floor=1000, goal=500)
    )
    return make_result(
        name,
        "ms p95",
        ours=many,
        limit=few,
        ratio=many / few,
        spread=(max(times)[1] - min(each[1] for each in times)) / many,
        against="beside 10 k jobs",
        beside={"cold": cold[1], "cold beside 10 k": cold[0]},
        target=target,
    )


def _cpu(name: str, spent: dict[str, float]) -> Result:
    worst = max(spent.values())
    return make_result(
        f"{name}: refresh",
        "ms of server CPU, dearest page",
        ours=worst,
        beside=spent,
        target=Target("ms", worst, floor=10, goal=6),
    )


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=round(1 / (1 - SHARE)), method="inclusive")[-1]
