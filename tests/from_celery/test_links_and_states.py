"""Links, reported states and expected errors where they are Holdfast's own: refusals, queues, logs, what is left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast.core.errors import Aborted, InvalidOption
from holdfast.observe.logging import LoggingObserver
from holdfast_celery import Celery, GroupResult, chain, group
from holdfast_celery.errors import ArgumentsInvalid, CeleryUnsupported
from holdfast_testing.kit import Kit
from tests.from_celery.sides import running_worker
from tests.support.until import PATIENCE_S, wait_until


@pytest.fixture
def app(any_url: str) -> Iterator[Celery]:
    """An application on each store."""
    with closing(Celery("links", url=any_url)) as made:
        yield made


@pytest.fixture
def kit(app: Celery, any_url: str) -> Iterator[Kit]:
    """What runs its tasks."""
    with closing(Kit(app, any_url)) as made:
        yield made


@pytest.fixture
def add(app: Celery) -> Any:
    """A task that adds."""

    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    return add


def test_a_state_is_reported_for_the_task_that_runs_only(app: Celery, kit: Kit) -> None:
    refused: list[str] = []

    @app.task(name="reports", bind=True)
    def reports(self: Any) -> None:
        self.update_state(self.request.id, "MINE", {"current": 1, "total": 4})
        with pytest.raises(CeleryUnsupported, match="for the task that is running") as raised:
            self.update_state(task_id="another", state="THEIRS")
        refused.append(str(raised.value))

    with pytest.raises(CeleryUnsupported, match="for the task that is running"):
        reports.update_state(state="NOBODY")
    result = reports.delay()
    kit.run_until_idle()
    assert (result.state, len(refused)) == ("SUCCESS", 1)


def test_a_reported_state_is_the_progress_of_the_attempt_and_goes_with_it(
    app: Celery, kit: Kit
) -> None:
    seen: list[Any] = []
    store = app.database.store

    def progress(id: Any) -> list[Any]:
        return [
            (each.fraction, each.note)
            for each in app.database.read(store.leases.progress([str(id)]))
        ]

    @app.task(name="reports", bind=True)
    def reports(self: Any) -> None:
        self.update_state(state="PROGRESS", meta={"current": 1, "total": 4})
        seen.extend(progress(self.request.id))

    result = reports.delay()
    kit.run_until_idle()
    assert seen == [(0.25, '{"state":"PROGRESS","meta":{"current":1,"total":4}}')]
    assert progress(result.id) == []


def test_a_sealed_task_reports_no_state_and_has_no_link_in_clear(app: Celery, add: Any) -> None:
    @app.task(name="secret", sealed=True)
    def secret() -> None: ...

    with pytest.raises(InvalidOption, match="sealed"):
        secret.apply_async(link=add.s())
    with pytest.raises(InvalidOption, match="sealed"):
        add.apply_async((1,), link_error=secret.si())
    with pytest.raises(InvalidOption, match="sealed"):
        secret.map([1]).delay()


def test_an_expected_error_is_logged_as_information(
    app: Celery, kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    class Missing(KeyError):
        """An error of the program's own."""

    @app.task(name="expected", throws=(LookupError,))
    def expected() -> None:
        raise Missing("no such order")

    @app.task(name="unexpected", throws=(LookupError,))
    def unexpected() -> None:
        raise OSError("away")

    app.observe(LoggingObserver())
    results = [expected.delay(), unexpected.delay()]
    with caplog.at_level(logging.INFO, "holdfast"):
        kit.run_until_idle()
    levels = {
        vars(each)["type"]: each.levelname
        for each in caplog.records
        if vars(each).get("event") == "job_failed"
    }
    # A class that no module has is not known from its text.
    assert levels == {"expected": "ERROR", "unexpected": "ERROR"}
    assert [each.state for each in results] == ["FAILURE", "FAILURE"]
    caplog.clear()

    @app.task(name="missing", throws=(LookupError,))
    def missing() -> None:
        raise KeyError("no such order")

    missing.delay()
    with caplog.at_level(logging.INFO, "holdfast"):
        kit.run_until_idle()
    (record,) = [each for each in caplog.records if vars(each).get("event") == "job_failed"]
    assert (record.levelname, vars(record)["type"]) == ("INFO", "missing")


def test_links_and_maps_go_to_the_queue_of_their_task(any_url: str) -> None:
    with closing(Celery("queued", url=any_url)) as app:
        app.conf.task_routes = {"mail.*": {"queue": "mail"}}

        @app.task(name="mail.send")
        def send(number: int) -> int:
            return number + 1

        with closing(Kit(app, any_url)) as kit:
            sent, mapped = send.apply_async((1,), link=send.s()), send.map([1, 2]).delay()
            kit.run_until_idle()
            assert (sent.get(timeout=1), mapped.get(timeout=1)) == (2, [2, 3])
            types = sorted(each.type for each in kit.started())
            assert types == ["mail:holdfast.celery.map", "mail:mail.send", "mail:mail.send"]


def test_a_link_that_is_none_is_refused_where_it_is_given(add: Any) -> None:
    for bad in (5, "add", [None]):
        with pytest.raises(InvalidOption, match="is not a signature"):
            add.apply_async((1,), link=bad)


def test_a_part_of_a_chain_is_found_by_its_id(app: Celery, kit: Kit, add: Any) -> None:
    result = chain(add.s(1, 1), add.s(2), add.s(3))()
    waiting = result.parent
    assert (waiting.state, waiting.ready()) == ("PENDING", False)
    kit.run_until_idle()
    assert app.AsyncResult(waiting.id).get(timeout=1) == waiting.get(timeout=1) == 4
    assert app.AsyncResult(result.parent.parent.id).parent is None


def test_the_group_within_a_chain_is_a_parent_once_it_has_started(
    app: Celery, kit: Kit, add: Any
) -> None:
    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = chain(add.s(1, 1), group(add.s(1), add.s(2)), total.s())()
    not_yet = result.parent
    assert not_yet is None
    kit.run_until_idle()
    assert [each.get(timeout=1) for each in result.parent] == [3, 4]
    assert result.parent.parent.get(timeout=1) == 2


def test_an_id_that_is_no_group_s_restores_nothing(app: Celery, kit: Kit, add: Any) -> None:
    assert GroupResult.restore(add.delay(1).id, app=app) is None
    assert GroupResult.restore("no id at all", app=app) is None


def test_wrong_arguments_are_told_with_a_code(add: Any) -> None:
    with pytest.raises(ArgumentsInvalid) as raised:
        add.delay(1, 2, 3)
    assert (raised.value.code, isinstance(raised.value, TypeError)) == ("HF200", True)


def test_a_task_that_runs_is_revoked_with_terminate_alone(app: Celery, any_url: str) -> None:
    begun, ends = [threading.Event() for _ in range(2)], list[str]()

    @app.task(name="checks", bind=True)
    def checks(self: Any, place: int) -> str:
        begun[place].set()
        try:
            while not gate.wait(0.01):
                self.request.job.checkpoint()
        except Aborted:
            ends.append("aborted")
            raise
        return "done"

    gate = threading.Event()
    app.migrate()
    with running_worker(app):
        results = [checks.delay(place) for place in range(2)]
        for each in begun:
            assert each.wait(PATIENCE_S)
        app.control.revoke([each.id for each in results])
        assert [each.state for each in results] == ["STARTED", "STARTED"]
        app.control.revoke(results[0].id, terminate=True)
        wait_until(lambda: ends == ["aborted"])
        gate.set()
        wait_until(lambda: [each.state for each in results] == ["REVOKED", "SUCCESS"])


def test_a_chain_that_is_revoked_goes_no_further(app: Celery, kit: Kit, add: Any) -> None:
    first_done = chain(add.s(1, 1), add.s(2))()
    kit.run_one()
    first_done.parent.revoke(terminate=True)
    kit.run_until_idle()
    assert first_done.get(timeout=1) == 4

    @app.task(name="stops", bind=True)
    def stops(self: Any) -> int:
        app.AsyncResult(str(self.request.root_id)).revoke()
        return 1

    result = chain(stops.s(), add.s(1))()
    kit.run_until_idle()
    assert (result.state, len(kit.started("add"))) == ("REVOKED", 2)
