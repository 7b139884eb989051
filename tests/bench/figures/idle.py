"""What an idle worker costs beside large backlogs that are not due or that nobody handles."""

from __future__ import annotations

import time

from tests.bench.command import Command, Running
from tests.bench.conditions import Condition
from tests.bench.figure import Bench, Result, Target, make_result
from tests.bench.server import session_seconds
from tests.bench.site import refresh, seed

NAMES = ("idle_cpu", "idle_server")
SETTLE_S = 5.0
MINUTE_MS = 60_000
BACKLOG = Condition("idle", delayed=1_000_000, unhandled=1_000_000)


def measure(bench: Bench) -> list[Result]:
    """Measure the processor time of the worker and of its sessions on the server over some time."""
    condition, seconds = BACKLOG.scaled(bench.scale.share), bench.scale.idle_seconds
    with bench.server.database() as url:
        seed(url, condition)
        refresh(url, condition)
        with Running(Command(url)) as running:
            time.sleep(SETTLE_S)
            worker, sessions = running.cpu_seconds(), session_seconds(url)
            time.sleep(seconds)
            worker = (running.cpu_seconds() - worker) / seconds
            server = _more(sessions, session_seconds(url))
            running.check()
    if server is None:
        return [_whole(worker, {"worker": worker * 100})] if "idle_cpu" in bench.wanted else []
    server /= seconds
    results = [_whole(worker + server, {"worker": worker * 100, "server": server * 100})]
    results.append(
        make_result(
            "idle_server",
            "ms of server time a minute",
            ours=server * MINUTE_MS,
            beside={"worker_ms": worker * MINUTE_MS},
            target=Target("ms", server * MINUTE_MS, floor=100, goal=60),
        )
    )
    return [each for each in results if each.name in bench.wanted]


def _whole(share: float, beside: dict[str, float]) -> Result:
    target = Target("% of a core", share * 100, floor=2.0, goal=1.0)
    return make_result("idle_cpu", "% of a core", ours=share * 100, beside=beside, target=target)


def _more(before: dict[int, float] | None, after: dict[int, float] | None) -> float | None:
    """Return what sessions used in between; a new one counts whole. None: the server is elsewhere."""
    if before is None or after is None:
        return None
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())
