"""A worker is killed while it runs a task: the attempt is made again, and what follows it happens once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.lease import Lease
from holdfast.settings.load import PREFIXES
from holdfast_celery import Celery, chain, chord, group
from holdfast_testing.kit import Kit
from tests.docs.snippets import ROOT
from tests.from_celery.killable import make_app
from tests.from_celery.sides import running_worker
from tests.support.until import PATIENCE_S, wait_until
from tests.support.warm_python import LIBRARIES


@pytest.fixture
def app(any_url: str, tmp_path: Path) -> Iterator[Celery]:
    """The application on each store."""
    os.mkfifo(tmp_path / "gate")
    made = make_app(tmp_path, any_url)
    yield made
    made.close()


@pytest.fixture
def kit(app: Celery, any_url: str) -> Iterator[Kit]:
    """The kit whose worker comes after the one that died."""
    made = Kit(app, any_url)
    yield made
    made.close()


def kill_worker_of(task: str, folder: Path, url: str) -> None:
    """Run a worker until the task has begun, and kill it."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(PREFIXES)}
    own |= {"HOLDFAST_URL": url, "KILLABLE_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    words = ("-m", "holdfast", "worker", "tests.from_celery.killable:app")
    with (folder / "worker.log").open("a") as log:
        worker = LIBRARIES.start(words, folder, own, log)
    try:
        wait_until((folder / f"begun.{task}").exists, (folder / "worker.log").read_text)
    finally:
        worker.kill()
        worker.wait()


STARTED: dict[str, tuple[str, Callable[[Celery], Any], object]] = {
    "a plain task": ("plain", lambda app: app.tasks["plain"].delay(1), 2),
    "a bound task": ("bound", lambda app: app.tasks["bound"].delay(1), [1, 0]),
    "a task of a chain": (
        "plain",
        lambda app: chain(app.tasks["add"].s(1), app.tasks["plain"].s(), app.tasks["add"].s(10))(),
        13,
    ),
    "a member of a chord": (
        "plain",
        lambda app: chord(
            [app.tasks["plain"].s(1), app.tasks["add"].s(2)], app.tasks["add"].s([])
        )(),
        [2, 3],
    ),
    "the body of a chord": (
        "total",
        lambda app: chord([app.tasks["add"].s(1), app.tasks["add"].s(2)], app.tasks["total"].s())(),
        5,
    ),
}
"""What runs when the worker is killed: the task that it is killed in, how it is started, and its result."""


@pytest.mark.parametrize("what", STARTED)
def test_what_a_killed_worker_ran_is_run_again(
    what: str, app: Celery, kit: Kit, any_url: str, tmp_path: Path
) -> None:
    task, start, value = STARTED[what]
    result = start(app)
    kill_worker_of(task, tmp_path, any_url)
    kit.advance("10m")
    kit.run_until_idle()
    assert (result.status, result.get(timeout=1)) == ("SUCCESS", value)
    attempts = [line.split() for line in (tmp_path / "attempts").read_text().splitlines()]
    assert [(name, retries) for name, retries, _ in attempts] == [(task, "0")] * 2
    assert attempts[0][2] != attempts[1][2]


LINKED: dict[str, tuple[str, Callable[[Celery], Any], str, str]] = {
    "a task with a link": (
        "completes",
        lambda app: app.tasks["completes"].apply_async((1,), link=app.tasks["after"].s()),
        "SUCCESS",
        "2\n",
    ),
    "a task of a chain with a link": (
        "completes",
        lambda app: chain(
            app.tasks["completes"].s(1).set(link=app.tasks["after"].s()), app.tasks["add"].s(1)
        )(),
        "SUCCESS",
        "2\n",
    ),
    "a task with a group as its link": (
        "completes",
        lambda app: app.tasks["completes"].apply_async(
            (1,), link=group(app.tasks["after"].s(), app.tasks["add"].s())
        ),
        "SUCCESS",
        "2\n",
    ),
    "a task with an error link": (
        "fails",
        lambda app: app.tasks["fails"].apply_async((1,), link_error=app.tasks["after"].s()),
        "FAILURE",
        "no 1\n",
    ),
}
"""What ends when the worker is killed, before the commit: its task, its status, and what the linked task leaves."""


@pytest.mark.parametrize("what", LINKED)
def test_what_is_linked_starts_once_if_the_worker_is_killed_at_the_end_of_the_task(
    what: str, app: Celery, kit: Kit, any_url: str, tmp_path: Path
) -> None:
    task, start, status, left = LINKED[what]
    result = start(app)
    kill_worker_of(task, tmp_path, any_url)
    assert not (tmp_path / "after").exists()
    for _ in range(2):
        kit.advance("10m")
        kit.run_until_idle()
    assert (result.status, (tmp_path / "after").read_text()) == (status, left)
    assert len(kit.started("after")) == 1


def test_the_death_of_a_worker_is_no_retry(app: Celery, kit: Kit) -> None:
    seen: list[int] = []

    @app.task(name="flaky", bind=True, autoretry_for=(OSError,), max_retries=1)
    def flaky(self: Any) -> None:
        seen.append(self.request.retries)
        raise OSError("gone")

    result = flaky.delay()
    kit.crash("flaky")
    kit.advance("10m")
    kit.run_until_idle()
    assert (seen, result.status) == ([0], "PENDING")
    kit.advance("10m")
    kit.crash("flaky")
    kit.advance("10m")
    kit.run_until_idle()
    assert (seen, result.status) == ([0, 1], "FAILURE")


def test_a_time_limit_is_final_for_a_task_without_retries(app: Celery, kit: Kit) -> None:
    began: list[str] = []
    end = threading.Event()

    def work(name: str) -> None:
        began.append(name)
        end.wait(0.5)  # longer than allowed

    slow = app.task(name="slow", time_limit=0.2)(work)
    patient = app.task(name="patient", time_limit=0.2, autoretry_for=(OSError,), max_retries=1)(
        work
    )
    results = [slow.delay("slow"), patient.delay("patient")]
    try:
        for _ in range(3):
            kit.run_until_idle()
            kit.advance("10m")
    finally:
        end.set()
    assert [each.status for each in results] == ["FAILURE", "FAILURE"]
    assert all("TimeLimitExceeded" in str(each.traceback) for each in results)
    assert sorted(began) == ["patient", "patient", "slow"]


def test_an_exception_of_a_plain_task_stays_final(app: Celery, kit: Kit) -> None:
    calls = []

    @app.task(name="breaks")
    def breaks() -> None:
        calls.append(1)
        raise ValueError("broken")

    result = breaks.delay()
    kit.crash("breaks")
    kit.advance("10m")
    kit.run_until_idle()
    kit.advance("10m")
    kit.run_until_idle()
    assert (calls, result.status) == ([1], "FAILURE")


@pytest.mark.parametrize("options", [{}, {"autoretry_for": (Exception,), "max_retries": 5}])
def test_a_task_that_calls_sys_exit_fails_and_is_not_run_again(
    options: dict[str, Any], app: Celery, kit: Kit
) -> None:
    calls = []

    @app.task(name="exits", **options)
    def exits() -> None:
        calls.append(1)
        sys.exit("going")

    result = exits.delay()
    for _ in range(3):
        kit.run_until_idle()
        kit.advance("10m")
    assert (calls, result.status, str(result.result)) == ([1], "FAILURE", "going")
    assert isinstance(result.get(timeout=1, propagate=False), Exception)


def test_an_error_that_is_not_the_task_s_ends_a_bound_task_too(
    app: Celery, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    @app.task(name="bound-too", bind=True, max_retries=1, default_retry_delay=1)
    def work(self: Any) -> int:
        calls.append(self.request.retries)
        return 1

    def break_off(*_: Any) -> None:
        raise OSError("the connection is gone")

    result = chain(work.s(), work.si())()
    monkeypatch.setattr("holdfast_celery.attempts._continue_chain", break_off)
    for _ in range(8):
        kit.run_until_idle()
        kit.advance("10m")
    assert len(calls) == 4
    assert (result.status, str(result.result)) == ("FAILURE", "the connection is gone")


def test_a_task_without_a_time_limit_may_take_longer_than_three_leases(app: Celery) -> None:
    lease = Lease("500ms")

    @app.task(name="long")
    def long() -> str:
        threading.Event().wait(3.5 * lease.duration_ms / 1000)
        return "done"

    result = long.delay()
    with running_worker(app, lease=lease):
        assert result.get(timeout=PATIENCE_S) == "done"
