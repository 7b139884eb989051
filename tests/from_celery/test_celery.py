"""Celery's decorators, calls, canvas and schedules: what is accepted has its effect, the rest is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import holdfast_celery as celery
from holdfast import Cancel, SyncJob
from holdfast.core.cycle import schedule_text
from holdfast.errors import (
    CircularWait,
    DuplicateJobType,
    HoldfastError,
    InputInvalid,
    InvalidOption,
    InvalidSchedule,
    PayloadNotEncodable,
    UnknownJobType,
    UnsupportedConnection,
    WaitTimeout,
)
from holdfast_celery import (
    AsyncResult,
    Celery,
    MaxRetriesExceededError,
    chain,
    chord,
    crontab,
    group,
    shared_task,
    signature,
)
from holdfast_celery.calls import tag
from holdfast_celery.coverage import FEATURES, Feature
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.exceptions import TaskRevokedError
from holdfast_testing.kit import Kit
from tests.cli.processes import Command
from tests.support.until import PATIENCE_S, wait_until


class Store:
    """A Celery application on one database, with tasks that remember their calls."""

    def __init__(self, url: str) -> None:
        self.app = app = Celery("shop", url=url)
        self.calls: list[tuple[Any, ...]] = []
        calls = self.calls

        @app.task(name="add")
        def add(a: int, b: int = 0) -> int:
            calls.append((a, b))
            return a + b

        @app.task(name="total")
        def total(numbers: list[int], more: int = 0) -> int:
            return sum(numbers) + more

        @app.task(name="fail")
        def fail(text: str = "broken") -> None:
            calls.append((text,))
            raise ValueError(text)

        self.add, self.total, self.fail = add, total, fail
        self.kit = Kit(app, url)

    def run(self) -> None:
        """Run what is due."""
        self.kit.run_until_idle()


@pytest.fixture
def store(any_url: str) -> Iterator[Store]:
    """The application on each store."""
    made = Store(any_url)
    yield made
    made.kit.close()
    made.app.close()


@pytest.fixture
def app(sqlite_url: str) -> Iterator[Celery]:
    """An application whose database is not needed."""
    made = Celery("shop", url=sqlite_url)
    yield made
    made.close()


def test_a_task_is_a_function_that_can_be_started(store: Store) -> None:
    assert store.add(1, 2) == 3
    result = store.add.delay(1, b=2)
    assert (result.status, result.ready(), result.result) == ("PENDING", False, None)
    store.run()
    assert (result.status, result.get(timeout=1), result.successful()) == ("SUCCESS", 3, True)
    assert store.app.AsyncResult(result.id).get() == 3
    assert store.calls == [(1, 2), (1, 2)]


def test_an_error_fails_a_task_at_once_unless_it_is_to_be_retried(store: Store) -> None:
    result = store.fail.delay()
    store.run()
    assert (result.status, result.failed()) == ("FAILURE", True)
    assert len(store.calls) == 1


def test_options_of_a_call_have_their_effect(store: Store) -> None:
    later = store.add.apply_async((1,), countdown=2_000, priority=2, task_id="one")
    again = store.add.apply_async((9,), task_id="one")
    timed = store.add.apply_async((2,), eta=datetime.now(UTC) + timedelta(hours=2))
    assert again == later
    (job,) = store.app.jobs.list("key:one")
    assert (job.priority, job.input) == (2, {"args": [1], "task_id": "one"})
    store.run()
    assert store.calls == []
    store.kit.advance("2001s")
    store.run()
    assert store.calls == [(1, 0)]
    assert AsyncResult("one", store.app).get() == 1
    store.kit.advance("2h")
    store.run()
    assert timed.get() == 2


def test_a_member_that_ends_while_its_group_is_revoked_does_not_save_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = group(store.add.s(1), store.add.s(2)).apply_async()
    revoke = AsyncResult.revoke

    def end_before(result: AsyncResult, terminate: bool = False) -> None:
        if result == both[0]:
            with store.app.transaction() as tx:
                store.app.chains.complete(tx, result.id)
        revoke(result)

    monkeypatch.setattr(AsyncResult, "revoke", end_before)
    both.revoke()
    assert [each.status for each in both] == ["SUCCESS", "REVOKED"]


def test_none_is_no_arguments_as_in_celery_s_own_calls(store: Store) -> None:
    given = {"a": 1, "b": 2}
    results = [
        store.app.send_task("add", None, given),
        store.add.apply_async(None, given),
        store.add.signature(None, given).delay(),
        signature("add", None, given).apply_async(None),
    ]
    store.run()
    assert [each.get() for each in results] == [3, 3, 3, 3]


def test_the_results_of_a_group_have_the_ids_that_were_chosen_for_its_members(store: Store) -> None:
    chosen, other = group(store.add.s(1).set(task_id="chosen"), store.add.s(2)).apply_async()
    assert (chosen.id, other.id) == ("chosen", str(other.app.chains.list().items[0].id))
    store.run()
    assert (chosen.get(), AsyncResult("chosen", store.app).get(), other.get()) == (1, 1, 2)


def test_a_task_that_expired_is_cancelled_and_not_run(store: Store) -> None:
    soon = store.add.apply_async((1,), expires=30, countdown=60)
    fixed = store.add.apply_async((2,), expires=datetime.now(UTC) + timedelta(days=1))
    store.kit.advance("61s")
    store.run()
    assert (soon.status, fixed.status) == ("REVOKED", "SUCCESS")
    assert store.calls == [(2, 0)]


def test_a_task_can_have_steps_and_be_signalled(store: Store) -> None:
    def double(number: int) -> int:
        store.calls.append((number,))
        return number * 2

    @store.app.task(bind=True, name="remind")
    def remind(self: Any, number: int) -> str:
        job: SyncJob[Any] = self.request.job
        twice = job.step("double", double, number)
        job.sleep("14d")
        return f"{twice} {job.wait_for('paid', key=number)}"

    result = remind.delay(4)
    store.run()
    assert result.status == "PENDING"
    store.kit.advance("14d")
    store.run()
    with store.app.transaction() as tx:
        store.app.signal(tx, "paid", key=4, data="in cash")
    store.run()
    assert result.get(timeout=1) == "8 in cash"
    assert store.calls == [(4,)]


def test_priorities_of_rabbitmq_are_turned_around(sqlite_url: str) -> None:
    app = Celery(url=sqlite_url, highest_priority=9)
    task = app.task(name="urgent", priority=9)(lambda: None)
    app.migrate()
    task.delay()
    task.apply_async(priority=0)
    assert [each.priority for each in app.jobs.list()] == [9, 0]
    app.close()


def test_retries_follow_celerys_rules(store: Store) -> None:
    seen: list[int] = []

    @store.app.task(
        bind=True,
        name="flaky",
        autoretry_for=(OSError,),
        dont_autoretry_for=(FileNotFoundError,),
        retry_backoff=2_000,
        retry_backoff_max=3_000,
        retry_jitter=False,
        retry_kwargs={"max_retries": 2},
    )
    def flaky(self: Any, error: str) -> None:
        seen.append(self.request.retries)
        raise {"os": ConnectionError, "file": FileNotFoundError}[error]("gone")

    never, often = flaky.delay("file"), flaky.delay("os")
    store.run()
    assert (never.status, often.status, seen) == ("FAILURE", "PENDING", [0, 0])
    for pause, count in (("1000s", 2), ("1000s", 3), ("2000s", 3), ("1000s", 4)):
        store.kit.advance(pause)
        store.run()
        assert len(seen) == count
    assert (often.status, seen) == ("FAILURE", [0, 0, 1, 2])
    assert (type(often.result), str(often.result)) == (ConnectionError, "gone")


def test_a_task_retries_itself(store: Store) -> None:
    @store.app.task(bind=True, name="again", max_retries=1, default_retry_delay=2_000)
    def again(self: Any, how: str) -> str:
        if how == "once" and self.request.retries:
            return str(self.request.id)
        try:
            raise KeyError(how)
        except KeyError as error:
            if how == "bare":
                raise self.retry() from None
            raise self.retry(exc=error, countdown=500) from None

    results = [again.delay("once"), again.delay("always"), again.delay("bare")]
    store.run()
    store.kit.advance("501s")
    store.run()
    assert [each.status for each in results] == ["SUCCESS", "FAILURE", "PENDING"]
    assert results[0].get() == results[0].id
    assert (type(results[1].result).__name__, str(results[1].result)) == ("KeyError", "'always'")
    attempts = store.app.jobs.attempts(results[1].id)
    assert [each.kind for each in attempts] == ["retry", "fail"]
    assert (attempts[0].error or "").startswith("TaskRetry: Retry in 500s: KeyError")
    store.kit.advance("2000s")
    store.run()
    assert isinstance(results[2].result, MaxRetriesExceededError)
    assert str(results[2].result) == "again was retried 1 times"
    with pytest.raises(KeyError):
        again("always")
    assert again.MaxRetriesExceededError is MaxRetriesExceededError


def test_a_rate_limit_holds_over_all_workers(store: Store) -> None:
    slow = store.app.task(name="slow", rate_limit="2/h")(len)
    results = [slow.delay("") for _ in range(3)]
    store.run()
    assert sorted(each.status for each in results) == ["PENDING", "SUCCESS", "SUCCESS"]
    store.kit.advance("61m")
    store.run()
    assert [each.status for each in results] == ["SUCCESS"] * 3


def test_a_chain_hands_each_result_on(store: Store) -> None:
    result = chain(store.add.s(1, 2), store.add.s(10), store.add.si(5), store.add.s(b=1))()
    store.run()
    assert result.get() == 6
    assert store.calls == [(1, 2), (3, 10), (5, 0), (5, 1)]
    assert len(store.app.chains.jobs(result.id)) == 4


def test_a_chain_ends_with_its_first_failure(store: Store) -> None:
    result = (store.fail.s() | store.add.si(1)).delay()
    store.run()
    assert result.status == "FAILURE"
    assert store.calls == [("broken",)]


def test_a_countdown_within_a_chain_counts_from_the_task_before(store: Store) -> None:
    result = chain(store.add.s(1), store.add.s(1).set(countdown=2_000))()
    store.run()
    store.kit.advance("1000s")
    store.run()
    assert len(store.calls) == 1
    store.kit.advance("1001s")
    store.run()
    assert result.get() == 2


def test_a_group_runs_all_of_its_members(store: Store) -> None:
    result = group(store.add.s(each, each) for each in range(3))()
    assert (len(result), result.ready(), result.completed_count()) == (3, False, 0)
    with pytest.raises(WaitTimeout, match="0 of 3"):
        result.get(timeout=0.01)
    store.run()
    assert (result.get(), result.join(), result.successful()) == ([0, 2, 4], [0, 2, 4], True)
    assert [each.get() for each in result] == [0, 2, 4]


def test_a_chord_runs_its_body_once_with_all_results_in_order(store: Store) -> None:
    one = chord([store.add.s(1), chain(store.add.s(2), store.add.s(2))], store.total.s(100))()
    two = chord(store.add.s(each) for each in (1, 2))(store.total.s())
    none = chord([], store.total.s())()
    three = (group(store.add.s(3), store.add.s(4)) | store.total.s() | store.add.s(1))()
    store.run()
    assert [each.get() for each in (one, two, none, three)] == [105, 3, 0, 8]


def test_a_chord_whose_header_fails_runs_no_body(store: Store) -> None:
    result = chord([store.add.s(1), store.fail.s()], store.add.si(99))()
    store.run()
    assert result.status == "FAILURE"
    assert (99, 0) not in store.calls


def test_groups_within_chains_fan_out_as_the_task_before_completes(store: Store) -> None:
    inner = chain(store.add.s(1), group(store.add.s(1), store.add.s(2)), store.total.s())()
    ending = chain(store.add.s(1), group(store.add.s(1), store.add.s(2)))()
    twice = chain(group(store.add.s(1), store.add.s(2)), group(store.total.s(), store.total.s(5)))()
    store.run()
    assert [inner.get(), ending.get(), twice.get()] == [5, [2, 3], [3, 8]]


def test_a_start_joins_the_callers_transaction(store: Store) -> None:
    def roll_back() -> None:
        with store.app.transaction() as tx, store.app.using(tx):
            store.add.delay(1)
            group(store.add.s(2), store.add.s(3))()
            raise RuntimeError("rolled back")

    with pytest.raises(RuntimeError):
        roll_back()
    with store.app.transaction() as tx, store.app.using(tx):
        kept = store.add.delay(4)
    store.run()
    assert store.calls == [(4, 0)]
    assert kept.get() == 4


async def test_an_async_transaction_is_refused(store: Store) -> None:
    async with store.app.transaction() as tx:
        with pytest.raises(UnsupportedConnection, match="delay"), store.app.using(tx):
            raise AssertionError("not reached")


def test_times_and_defaults_of_a_task_have_their_effect(store: Store) -> None:
    @store.app.task(bind=True, name="timed", expires=1_000, priority=1)
    def timed(self: Any) -> None:
        raise self.retry(eta=datetime.now(UTC) + timedelta(hours=3))

    results = [timed.delay(), timed.signature(expires=9_000, priority=7).delay()]
    store.run()
    found = [store.app.jobs.get(each.id) for each in results]
    assert [each.priority for each in found] == [1, 7]
    for job in found:
        assert job.available_at is not None
        assert timedelta(hours=2) < job.available_at - job.created_at < timedelta(hours=4)
    late = timed.delay()
    store.kit.advance("1001s")
    store.run()
    assert (late.status, "expired at" in str(late.result)) == ("REVOKED", True)


def test_results_can_be_revoked_and_forgotten(store: Store) -> None:
    waiting, group_result = store.add.delay(1), group(store.add.s(2))()
    waiting.revoke()
    group_result.revoke()
    store.run()
    assert (waiting.status, group_result[0].status, store.calls) == ("REVOKED", "REVOKED", [])
    waiting.forget()
    assert (waiting.status, waiting.result) == ("PENDING", None)
    store.app.AsyncResult("nothing-like-it").revoke()
    store.app.AsyncResult("nothing-like-it").forget()
    with pytest.raises(TaskRevokedError, match=r"^revoked$"):
        group_result.get()


def test_a_task_can_be_revoked_by_an_id_that_is_no_text(store: Store) -> None:
    waiting = store.add.delay(1)
    store.app.control.revoke(UUID(waiting.id))
    assert waiting.status == "REVOKED"


def test_waiting_inside_a_task_is_refused(store: Store) -> None:
    @store.app.task(name="waits")
    def waits() -> int:
        found: int = store.add.delay(1).get()
        return found

    result = waits.delay()
    store.run()
    assert "write a chain or a chord" in str(result.get(propagate=False)) or result.failed()
    assert isinstance(result.result, RuntimeError)
    assert isinstance(result.result, CircularWait)


def test_a_task_may_answer_as_a_handler_does(store: Store) -> None:
    @store.app.task(name="stops", ignore_result=True)
    def stops(how: str) -> Any:
        return Cancel("not needed") if how == "cancel" else how

    cancelled, dropped = stops.delay("cancel"), stops.delay("dropped")
    handed = chain(stops.s("kept"), stops.s())()
    store.run()
    assert (cancelled.status, dropped.get(), handed.get()) == ("REVOKED", None, None)


def test_beat_entries_become_cycles_that_start_their_task_once(store: Store) -> None:
    store.app.conf.timezone = "Europe/Warsaw"
    store.app.conf.beat_schedule = {
        "add every second": {
            "task": "add",
            "schedule": 1.0,
            "args": (7,),
            "options": {"priority": 1},
        },
        "nightly": {"task": "total", "schedule": crontab(hour=2, minute=30), "args": ([1],)},
    }
    assert {name: schedule_text(each.schedule) for name, each in store.app.cycle_specs.items()} == {
        "add-every-second": ("every 1s", "UTC"),
        "nightly": ("30 2 * * *", "Europe/Warsaw"),
    }
    store.app.conf.beat_schedule = {"only": {"task": "add", "schedule": timedelta(minutes=5)}}
    store.app.add_periodic_task(60, store.add.s(1), name="more")
    store.app.conf.timezone = "UTC"
    assert set(store.app.cycle_specs) == {"only", "more"}


def test_shared_tasks_belong_to_every_application_and_run_in_the_newest(
    sqlite_url: str, tmp_path: Path
) -> None:
    before = Celery(url=sqlite_url)

    @shared_task(name=f"shared-{tmp_path.name}")
    def shared(text: str) -> str:
        return text

    after = Celery(url=sqlite_url)
    assert shared.name in before.tasks
    assert shared.name in before.registry
    assert shared.name in after.registry
    assert shared.app is after
    with closing(before), closing(after), closing(Kit(after, sqlite_url)) as kit:
        result = shared.delay("hello")
        kit.run_until_idle()
        assert result.get() == "hello"
        assert after.send_task(shared.name, ("again",)).status == "PENDING"


def test_modules_with_tasks_are_imported_before_tasks_are_looked_up(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lazy_shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "apps.py").write_text("class ShopConfig: ...")
    (package / "app.py").write_text(
        "from holdfast_celery import Celery\n"
        f"app = Celery('lazy', url={sqlite_url!r}, include=['lazy_shop.mails'])\n"
        "app.conf.include = ['lazy_shop.orders']\n"
        "app.autodiscover_tasks(lambda: ['lazy_shop', 'json', 'lazy_shop.apps.ShopConfig'])\n"
        "@app.on_after_configure.connect\n"
        "def schedule(sender, **_):\n"
        "    sender.add_periodic_task(60, sender.signature('lazy_shop.tasks.grow'), name='grow')\n"
    )
    for name in ("tasks", "mails", "orders"):
        (package / f"{name}.py").write_text(
            "from lazy_shop.app import app\n@app.task\ndef grow():\n    return 1\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = __import__("lazy_shop.app", fromlist=["app"]).app
    assert "lazy_shop.tasks" not in sys.modules
    expected = {"lazy_shop.tasks.grow", "lazy_shop.mails.grow", "lazy_shop.orders.grow"}
    assert expected <= {each.name for each in app.registry}
    assert set(app.cycle_specs) == {"grow"}
    app.close()


def test_settings_are_read_from_an_object_or_refused_together(app: Celery) -> None:
    class Settings:
        CELERY_TIMEZONE = "Asia/Tokyo"
        CELERY_TASK_TIME_LIMIT = 30
        CELERY_BROKER_URL = "redis://localhost"
        CELERY_RESULT_BACKEND = "redis://localhost"

        CELERY_WORKER_MAX_TASKS_PER_CHILD = 4
        CELERY_RESULT_EXPIRES = 60
        CELERY_LOG_FOLDER = "the project's own"
        CELERY_ALWAYS_EAGER = "not a name that Celery has with a prefix"

    with pytest.raises(CeleryUnsupported, match="2 settings are not covered") as refused:
        app.config_from_object(Settings, namespace="CELERY")
    assert any("result_expires: " in each for each in refused.value.details)
    app.config_from_object(
        Settings, namespace="CELERY", ignore=["worker_max_tasks_per_child", "result_expires"]
    )
    slow = app.task(name="slow")(lambda: None)
    quick = app.task(name="quick", time_limit=1)(lambda: None)
    assert app.registry.get(slow.name).timeout_ms == 30_000
    assert app.registry.get(quick.name).timeout_ms == 1_000
    with pytest.raises(CeleryUnsupported, match="set after tasks were looked up"):
        app.conf.task_time_limit = 5


@pytest.mark.parametrize(
    ("concurrency", "words", "slots"),
    [("'3'", (), 3), ("3", ("--slots", "2"), 2), ("None", (), 10), ("0", (), 10)],
)
def test_a_worker_has_as_many_slots_as_its_settings_say_unless_it_is_told(
    tmp_path: Path, concurrency: str, words: tuple[str, ...], slots: int
) -> None:
    (tmp_path / "shop.py").write_text(
        "from holdfast_celery import Celery\napp = Celery('shop', url='sqlite:///shop.db')\n"
        f"app.conf.worker_concurrency = {concurrency}\n@app.task\ndef add(a, b): return a + b\n"
    )
    for command in (("migrate", "--app", "shop:app"), ("worker", "shop:app", "--drain", *words)):
        with Command(*command, cwd=tmp_path) as running:
            said, errors = running.process.communicate(timeout=PATIENCE_S)
        assert running.process.returncode == 0, errors
    assert f"worker · {slots} slots" in said + errors


def test_a_concurrency_that_is_no_number_is_refused(app: Celery) -> None:
    app.conf.worker_concurrency = "many"
    with pytest.raises(InvalidOption, match="is no number"):
        app.default_settings()


def test_settings_of_before_celery_4_are_read_where_no_prefix_is_named(app: Celery) -> None:
    app.config_from_object(
        {
            "CELERYBEAT_SCHEDULE": {"nightly": {"task": "report", "schedule": 60}},
            "CELERY_TIMEZONE": "Asia/Tokyo",
            "CELERY_TASK_SERIALIZER": "json",
            "CELERYD_TASK_TIME_LIMIT": 30,
            "CELERY_BROKER_URL": "not a name that Celery had",
            "DEBUG": True,
        }
    )
    assert (app.conf.timezone, app.conf.task_time_limit) == ("Asia/Tokyo", 30)
    assert set(app.cycle_specs) == {"nightly"}
    with pytest.raises(CeleryUnsupported, match="worker_max_tasks_per_child"):
        app.config_from_object({"CELERYD_MAX_TASKS_PER_CHILD": 4})


WRONG: dict[str, Any] = {
    "an argument too many": lambda app: _task(app).delay(1, 2, 3),
    "a time without a zone": lambda app: _task(app).apply_async((1,), eta=datetime(2030, 1, 1)),  # noqa: DTZ001
    "two times": lambda app: _task(app).apply_async((1,), countdown=1, eta=datetime.now(UTC)),
    "an object": lambda app: _task(app).delay(object()),
    "a set in a list": lambda app: _task(app).delay([{1}]),
    "a key that is no text": lambda app: _task(app).delay({1: 2}),
    "a number as a key": lambda app: _task(app).delay({1: 2}),
    "a priority": lambda app: _task(app).apply_async((1,), priority=10),
    "no such task": lambda app: app.send_task("nothing"),
    "no such task later": lambda app: chain(_task(app).s(1), signature("nothing"))(),
    "an id in the middle": lambda app: chain(_task(app).s(1), _task(app).s().set(task_id="x"))(),
    "an id of a group": lambda app: group(_task(app).s(1)).apply_async(task_id="x"),
    "a body missing": lambda app: chord([_task(app).s(1)])(),
    "no signature": lambda app: chain(1, 2),
    "no chain": lambda app: chain(),
    "acks_late": lambda app: app.task(acks_late=False)(print),
    "a pickle": lambda app: app.task(serializer="pickle")(print),
    "max_retries": lambda app: app.task(max_retries=-1)(print),
    "a rate": lambda app: app.task(rate_limit="often")(print),
    "retry_kwargs": lambda app: app.task(retry_kwargs={"args": 1})(print),
    "crontab": lambda app: crontab(day_of_week=1, day_of_month=1),
    "a schedule": lambda app: app.add_periodic_task("often", _task(app).s(1)),
    "a relative entry": lambda app: app.conf.update(
        beat_schedule={"x": {"task": "t", "schedule": 1, "relative": True}}
    ),
    "a misspelled entry": lambda app: app.conf.update(beat_schedule={"x": {"taks": "t"}}),
    "an unknown setting": lambda app: app.conf.update(timezoen="UTC"),
    "highest_priority": lambda app: Celery(highest_priority=5),
    "the same name twice": lambda app: (_task(app, "same"), _task(app, "same")),
    "async": lambda app: app.task(name="async")(_async_task),
}


async def _async_task() -> None: ...


def _task(app: Celery, name: str | None = None) -> celery.CeleryTask:
    def one(a: Any) -> Any:
        return a

    return app.task(name=name or f"one-{len(app.tasks)}")(one)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_refused_with_a_code_and_a_fix(what: str, app: Celery) -> None:
    with pytest.raises(HoldfastError) as refused:
        WRONG[what](app)
    assert isinstance(
        refused.value,
        CeleryUnsupported
        | DuplicateJobType
        | InputInvalid
        | InvalidOption
        | InvalidSchedule
        | PayloadNotEncodable
        | UnknownJobType,
    )
    assert refused.value.code


def home_of(name: str) -> str:
    """The module that a name is imported from, by what the table says of it."""
    words = next(
        each.text for each in FEATURES if (each.kind, each.name) == ("import", name)
    ).split()
    return words[1] if words[0] == "from" else "holdfast_celery"


OF_GROUPS = ("skew", "group", "tasks")

USES: dict[str, Callable[[Celery, str], Any]] = {
    "application argument": lambda app, name: Celery(**dict[str, Any]({name: None})),
    "setting": lambda app, name: app.conf.update({name: None}),
    "task option": lambda app, name: app.task(**{name: None})(print),
    "call option": lambda app, name: _task(app).apply_async((1,), **{name: None}),
    "route option": lambda app, name: app.conf.update(task_routes={"*": {name: None}}),
    "retry option": lambda app, name: _task(app).retry(**{name: None}),
    "application attribute": getattr,
    "control attribute": lambda app, name: getattr(
        app.control.inspect() if name in ("active", "registered", "stats") else app.control, name
    ),
    "control argument": lambda app, name: app.control.revoke([], **dict[str, Any]({name: True})),
    "task attribute": lambda app, name: getattr(_task(app), name),
    "request attribute": lambda app, name: getattr(_task(app).request, name),
    "result attribute": lambda app, name: getattr(AsyncResult("x", app), name),
    "result argument": lambda app, name: AsyncResult("x", app).get(**dict[str, Any]({name: 1})),
    "group result attribute": lambda app, name: getattr(celery.GroupResult([]), name),
    "signature attribute": lambda app, name: getattr(
        _task(app).chunks([(1,)], 1) if name in OF_GROUPS else _task(app).s(), name
    ),
    "import": lambda app, name: getattr(import_module(home_of(name)), name),
}
"""How a program uses a feature of each kind."""


@pytest.mark.parametrize(
    "feature",
    [each for each in FEATURES if not each.is_covered],
    ids=lambda each: f"{each.kind} {each.name}",
)
def test_what_is_not_covered_is_refused_with_what_to_write_instead(
    feature: Feature, app: Celery
) -> None:
    with pytest.raises(CeleryUnsupported) as refused:
        USES[feature.kind](app, feature.name)
    assert refused.value.help == feature.text


@pytest.mark.parametrize(
    "feature",
    [
        each
        for each in FEATURES
        if each.is_covered and ("attribute" in each.kind or each.kind == "import")
    ],
    ids=lambda each: f"{each.kind} {each.name}",
)
def test_what_is_said_to_be_covered_is_there(feature: Feature, app: Celery) -> None:
    if feature.kind == "result attribute":
        assert hasattr(AsyncResult, feature.name) or feature.name == "id"
    else:
        USES[feature.kind](app, feature.name)


def test_what_is_not_covered_is_no_attribute_for_those_who_ask(app: Celery) -> None:
    things = (app, _task(app), _task(app).request, AsyncResult("x", app), _task(app).s())
    assert [hasattr(each, "backend") or hasattr(each, "freeze") for each in things] == [False] * 5
    assert getattr(celery.GroupResult([]), "iterate", None) is None
    with pytest.raises(CeleryUnsupported, match="signature attribute set is not covered"):
        _ = chain(_task(app).s()).set  # type: ignore[attr-defined]


def test_a_name_that_is_missing_in_a_bound_task_is_the_error_that_is_recorded(store: Store) -> None:
    @store.app.task(name="forgot", bind=True)
    def forgot(self: Any) -> None:
        raise SoftTimeLimitExceeded  # type: ignore[name-defined]  # noqa: F821

    result = forgot.delay()
    store.run()
    assert "name 'SoftTimeLimitExceeded' is not defined" in str(result.traceback)


def test_celery_is_not_needed_and_nothing_of_it_is_imported_by_holdfast() -> None:
    script = (
        "import sys; sys.modules['celery'] = sys.modules['redis'] = None\n"
        "import holdfast; from holdfast import Holdfast\n"
        "assert 'holdfast.contrib' not in sys.modules\n"
        "import holdfast_celery, holdfast_celery.analysis"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_plain_values_are_stored_as_they_are() -> None:
    value = {"a": [1, 2.5, None, True, ["x", {}]]}
    assert tag(value, "a value") == value


def test_a_task_of_celerys_keeps_its_name_and_its_function(app: Celery) -> None:
    theirs = import_module("celery").Celery("theirs", broker="memory://")

    def decorate(function: Any, **options: Any) -> celery.CeleryTask:
        return app.task(**options)(
            theirs.task(name=f"shop.{function.__name__}", **options)(function)
        )

    def bound(self: Any, a: int) -> tuple[object, int]:
        return self, a

    def plain(a: int) -> int:
        return a

    both = decorate(bound, bind=True), decorate(plain)
    assert [each.name for each in both] == ["shop.bound", "shop.plain"]
    assert both[0](1) == (both[0], 1)
    assert both[1](2) == 2
    assert theirs.tasks["shop.plain"](3) == 3
    with pytest.raises(CeleryUnsupported, match="is a Celery signature"):
        chain(both[1].s(1), theirs.tasks["shop.plain"].s())


MODULES = {
    "": ["Celery", "Task", "chain", "chord", "group", "shared_task", "signature"],
    "canvas": ["chain", "chord", "group", "signature"],
    "exceptions": [
        *("ChordError", "MaxRetriesExceededError", "Retry", "TaskRevokedError"),
        *("TimeLimitExceeded", "TimeoutError", "WorkerLostError"),
    ],
    "result": ["AsyncResult", "EagerResult", "GroupResult"],
    "schedules": ["crontab"],
    "signals": [
        *("task_failure", "task_postrun", "task_prerun", "task_retry", "task_success"),
        *("worker_ready", "worker_shutdown"),
    ],
}
"""What projects import, by the modules of Celery that have it."""


@pytest.mark.parametrize("module", MODULES)
def test_one_rewrite_of_import_lines_is_enough(module: str) -> None:
    dot = f".{module}" if module else ""
    ours, theirs = import_module(f"holdfast_celery{dot}"), import_module(f"celery{dot}")
    for name in MODULES[module]:
        assert hasattr(theirs, name), f"celery{dot} has no {name}"
        assert hasattr(ours, name), f"holdfast_celery{dot} has no {name}"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("schedules", "solar"),
        ("canvas", "subtask"),
        ("result", "ResultSet"),
        ("exceptions", "Ignore"),
    ],
)
def test_what_a_module_does_not_have_is_refused_with_what_to_write(module: str, name: str) -> None:
    with pytest.raises(CeleryUnsupported) as refused:
        getattr(import_module(f"holdfast_celery.{module}"), name)
    assert refused.value.help
    with pytest.raises(AttributeError):
        _ = import_module(f"holdfast_celery.{module}").no_such_name


@pytest.mark.parametrize("method", ["revoke", "terminate"])
def test_arguments_of_control_that_change_nothing_are_refused(method: str, app: Celery) -> None:
    call = getattr(app.control, method)
    call([], signal="SIGKILL", timeout=5)
    with pytest.raises(CeleryUnsupported, match=r"control argument reply of app\.control\.revoke"):
        call("an-id", reply=True)
    with pytest.raises(CeleryUnsupported, match=r"terminated of app\.control\.revoke is unknown"):
        call("an-id", terminated=True)


def test_packages_themselves_are_imported_where_no_module_of_them_is_named(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_tasks.py").write_text(
        "from holdfast_celery import shared_task\n\n@shared_task\ndef found():\n    pass\n"
    )
    app.autodiscover_tasks(["own_tasks"], related_name=None, force=True)
    assert "own_tasks.found" in app.tasks


def test_control_revokes_and_says_which_workers_live_and_what_they_run(store: Store) -> None:
    control, seen = store.app.control, list[Any]()

    @store.app.task(name="ask", bind=True)
    def ask(self: Any, number: int) -> None:
        wait_until(control.ping)  # a worker that has just started is not seen yet
        stats = control.inspect().stats()
        seen.append((control.ping(), control.inspect().active(), stats, self.request.id))

    inspection = control.inspect()
    assert control.ping() == []
    assert (inspection.ping(), inspection.active(), inspection.stats()) == (None, None, None)
    one, two, kept = store.add.delay(1), store.add.delay(2), ask.delay(7)
    control.revoke([one.id, two.id, "no-such-id"], terminate=True)
    control.revoke(one.id)
    store.run()
    assert [each.status for each in (one, two, kept)] == ["REVOKED", "REVOKED", "SUCCESS"]
    [[(ping,), active, stats, id]] = seen
    [(worker, tasks)] = active.items()
    [shown] = stats.values()
    assert (shown["pid"], 0 <= shown["uptime"] < 600) == (os.getpid(), True)
    assert shown["pool"]["max-concurrency"] >= 1
    assert control.inspect(["another"]).stats() is None
    assert ping == {worker: {"ok": "pong"}}
    assert [(each["id"], each["name"], each["args"]) for each in tasks] == [(id, "ask", [7])]
