"""What three open dashboards take from a worker that drains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.pages_server import SLOWEST_S, Dashboard, visit
from tests.bench.site import fill, refresh

NAMES = ("drain_with_dashboards",)
OPEN: tuple[str, ...] = ("/", "/jobs", "/types")
SHORTEST_PAUSE_S = 1.0
"""As the page's own script pauses between two refreshes."""


def measure(bench: Bench) -> list[Result]:
    """Drain with and without them, in turn."""
    jobs = bench.scale.jobs * 2
    refreshes = [0]
    with bench.server.database() as url:

        def drained(pages: tuple[str, ...]) -> float:
            refresh(url, FRESH)
            filled = fill(url, "noop", jobs)
            with _open(url, pages) as watchers:
                found = drain(Command(url), filled, jobs).rate
            refreshes[0] += sum(each.refreshes for each in watchers)
            return found

        contest = Contest(
            bench.scale.side_rounds, {"with": lambda: drained(OPEN), "without": lambda: drained(())}
        )
    share = contest.ratio("with", "without")
    if not refreshes[0]:
        raise RuntimeError("the dashboards were never refreshed")
    return [
        contest.result(
            "drain_with_dashboards",
            "jobs/s",
            ours="with",
            limit="without",
            against="no dashboard open",
            target=Target("× without", share, floor=0.9, goal=0.97),
        )
    ]


@contextmanager
def _open(url: str, pages: tuple[str, ...]) -> Iterator[list[_Watcher]]:
    """Serve the dashboard and keep pages open on it; without pages nothing is served."""
    if not pages:
        yield []
        return
    with Dashboard(url) as dashboard, ExitStack() as stack:
        yield [stack.enter_context(_Watcher(dashboard, path)) for path in pages]


class _Watcher:
    """One open page: it listens to the stream and fetches its live part when the server hints at a change."""

    def __init__(self, dashboard: Dashboard, path: str) -> None:
        self._dashboard = dashboard
        self._path = path
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.refreshes = 0

    def __enter__(self) -> _Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join(SLOWEST_S)

    def _watch(self) -> None:
        stream = self._dashboard.visitor()
        stream.request("GET", "/api/v1/live")
        answer = stream.getresponse()
        last = 0.0
        while not self._leaving.is_set():
            if not (line := answer.readline()):
                break
            if not line.startswith(b"event: hint"):
                continue
            if self._leaving.wait(max(0.0, last + SHORTEST_PAUSE_S - time.monotonic())):
                break
            # Servers close connections that rest for long, and browsers open them again.
            with closing(self._dashboard.visitor()) as visitor:
                visit(visitor, self._path, live=True)
            last = time.monotonic()
            self.refreshes += 1
        stream.close()
