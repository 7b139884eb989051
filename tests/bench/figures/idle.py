"""What an idle worker costs beside large backlogs that are not due or that nobody handles."""

from __future__ import annotations

import time

import psutil
import psycopg

from tests.bench.conditions import Condition
from tests.bench.figure import Bench, Result, Target, make_result
from tests.bench.machine import cpu_seconds
from tests.bench.site import refresh, seed
from tests.bench.subject import Spec
from tests.bench.subjects import Subject

NAMES = ("idle_cpu",)
SETTLE_S = 2.0
BACKLOG = Condition("idle", delayed=1_000_000, unhandled=1_000_000)
SESSIONS = "select pid from pg_stat_activity where application_name like 'holdfast %'"


def measure(bench: Bench) -> list[Result]:
    """Measure the processor time of the worker and of its sessions on the server over some seconds."""
    condition = BACKLOG.scaled(bench.scale.share)
    with bench.server.database() as url:
        seed(url, condition)
        refresh(url, condition)
        with Subject(Spec(url, ("noop",), hints=True)) as subject:
            subject.go()
            time.sleep(SETTLE_S)
            before = _spent(url, subject.pid)
            time.sleep(bench.scale.idle_seconds)
            after = _spent(url, subject.pid)
            subject.stop()
            subject.report()
    shares = [
        (late - early) / bench.scale.idle_seconds * 100
        for early, late in zip(before, after, strict=True)
    ]
    return [
        make_result(
            "idle_cpu",
            "% of a core",
            ours=sum(shares),
            beside={"worker": shares[0], "server": shares[1]},
            target=Target("% of a core", sum(shares), floor=2.0, goal=1.0),
        )
    ]


def _spent(url: str, worker: int) -> tuple[float, float]:
    """Return the seconds that the worker and its sessions have used."""
    with psycopg.connect(url, autocommit=True) as connection:
        sessions = [row[0] for row in connection.execute(SESSIONS).fetchall()]
    return cpu_seconds(worker), sum(cpu_seconds(pid) for pid in sessions if psutil.pid_exists(pid))
