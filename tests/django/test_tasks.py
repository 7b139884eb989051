"""Tasks of a Django project: enqueued in its transactions, run by `manage.py holdfast worker`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.django.conftest import ON_POSTGRES, ON_SQLITE
from tests.django.project import PATIENCE_S, Project
from tests.support.frozen_process import freeze
from tests.support.until import wait_until

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)

TASKS = """
    import os, time
    from datetime import datetime
    from decimal import Decimal
    from pathlib import Path
    from django.db import connection
    from django.db.models import TextChoices
    from holdfast import Limit, Permanent, Rate, Retry
    from holdfast_django.tasks import task
    from shop.models import Order

    @task
    def add(a, b):
        return a + b

    @task(takes_context=True, retry=Retry(base="100ms", max_attempts=3))
    def third_time(context, name):
        if context.attempt < 3:
            raise ValueError(f"not yet: {context.attempt}")
        return [context.attempt, len(context.task_result.errors), name]

    @task(retry=Retry(base="100ms", max_attempts=2))
    def never():
        raise LookupError("never")

    @task(retry=Retry(base="1h", cap="1h"))
    def hopeless():
        raise Permanent("no use")

    @task(queue_name="mail")
    async def count_orders():
        return await Order.objects.acount()

    @task(atomic=True)
    def place(name, fails=False):
        order = Order.objects.create(name=name)
        if fails:
            raise RuntimeError("after the insert")
        return order.pk

    @task(key="report:{year}")
    def report(year, pages=1):
        return [year, pages]

    @task(limits=[Limit(1, by="tenant")], rates=[Rate(100, "1s", name="all")])
    def alone(tenant, number=0):
        Path(f"running.{tenant}").mkdir()
        time.sleep(0.1)  # another one has the time to begin beside it
        Path(f"running.{tenant}").rmdir()
        return tenant

    @task(timeout="300ms", retry=Retry(base="100ms", max_attempts=1))
    def sleep():
        time.sleep(5)  # far beyond its timeout

    class Size(TextChoices):
        SMALL = "s"

    @task
    def same(value, **named):
        assert isinstance(value["at"], datetime) and isinstance(value["price"], Decimal), value
        return value

    @task
    async def same_later(value):
        return value

    @task(key="day:{day}", limits=[Limit(1, by="day")])
    def once_a_day(day):
        return day

    @task
    def wait_for(path):
        Path(f"{path}.{os.getpid()}").touch()
        while not Path(path).exists():
            time.sleep(0.02)
        return "went on"

    @task(takes_context=True)
    def sell(context, number):
        paid = context.job.step("reserve", reserve, number)
        return f"{paid}, {context.job.wait_for('paid', key=number)}"

    @task(takes_context=True)
    async def sell_async(context, number):
        paid = await context.job.step("reserve", areserve, number)
        return f"{paid}, {await context.job.wait_for('paid', key=number)}"

    def reserve(number):
        Order.objects.create(name=f"order {number}")
        return f"order {number}"

    async def areserve(number):
        await Order.objects.acreate(name=f"order {number}")
        return f"order {number}"

    @task(expires="1ms", keep="1h")
    def too_late():
        raise AssertionError("began")

    @task(keep=0)
    def forgettable():
        Path("ran").touch()

    @task
    def sign(path):
        own = f"{path}.{os.getpid()}"
        Path(own).touch()
        while not Path(f"{own}.go").exists():
            time.sleep(0.02)
        Path(f"{own}.ended").touch()
        return os.getpid()
"""
SHOWN = """
    from holdfast_django.tasks_api import task_backends
    def show(id):
        found = task_backends["default"].get_result(id)
        return {
            "status": str(found.status), "value": found._return_value, "attempts": found.attempts,
            "errors": [each.exception_class_path for each in found.errors],
            "text": "".join(each.traceback for each in found.errors)}
"""


@pytest.fixture
def shop(project: Project) -> Project:
    """A project with tasks, migrated."""
    return prepared(project)


def prepared(project: Project) -> Project:
    project.write("shop/tasks.py", TASKS)
    project.manage("migrate", "--run-syncdb")
    return project


def test_a_worker_runs_what_was_enqueued(shop: Project) -> None:
    ids = shop.evaluate(
        """
        from shop.tasks import *
        from holdfast_django.tasks import priority_level
        ids = [each.id for each in (
            add.enqueue(1, b=2), third_time.enqueue("x"), never.enqueue(), hopeless.enqueue(),
            count_orders.enqueue(), place.enqueue("kept"), place.enqueue("undone", fails=True),
            sleep.enqueue(), add.using(queue_name="mail", priority=40).enqueue(2, 2))]
        once, again, other = report.enqueue(2026), report.enqueue(2026, pages=2), report.enqueue(2027)
        assert once.id == again.id != other.id, (once, again, other)
        assert again.args == [2026] and again.kwargs == {}
        answer([*ids, once.id])
        """
    )
    shop.write("shown.py", SHOWN)
    for _ in range(3):
        # A task that waits for its next attempt is not due, and a drained worker does not wait for it.
        said = shop.manage("holdfast", "worker", "--drain")
        found = shop.evaluate(
            f"from shown import show\nfrom shop.models import Order\n"
            f"answer([[show(each) for each in {ids!r}], list(Order.objects.values_list('name', flat=True))])"
        )
        if all(each["status"] in ("SUCCESSFUL", "FAILED") for each in found[0]):
            break
    assert "state=RUNNING" not in said
    results, orders = found
    added, third, never, hopeless, counted, kept, undone, slept, mailed, report = results
    assert (added["status"], added["value"], added["attempts"]) == ("SUCCESSFUL", 3, 1)
    assert (third["value"], third["attempts"]) == ([3, 2, "x"], 3)
    assert third["errors"] == ["builtins.ValueError"] * 2
    assert "not yet: 1" in third["text"]
    assert (never["status"], never["errors"]) == ("FAILED", ["builtins.LookupError"] * 2)
    assert (hopeless["status"], hopeless["attempts"]) == ("FAILED", 1)
    assert hopeless["errors"] == ["holdfast.core.errors.Permanent"]
    assert counted["value"] in (0, 1)
    assert kept["status"] == "SUCCESSFUL"
    assert undone["errors"] == ["builtins.RuntimeError"]
    assert orders == ["kept"]
    assert slept["status"] == "FAILED"
    assert "stopped after" in slept["text"]
    assert mailed["value"] == 4
    assert report["value"] == [2026, 1]


def test_tasks_expire_and_are_kept_as_their_options_say(shop: Project) -> None:
    late, gone = shop.evaluate(
        "from shop.tasks import *\nanswer([too_late.enqueue().id, forgettable.enqueue().id])"
    )
    shop.manage("holdfast", "worker", "--drain")
    shop.write("shown.py", SHOWN)
    status = shop.evaluate(f"from shown import show\nanswer(show({late!r})['status'])")
    assert status == "FAILED"
    with pytest.raises(AssertionError, match="TaskResultDoesNotExist"):
        shop.evaluate(f"from shown import show\nanswer(show({gone!r}))")
    assert (shop.folder / "ran").exists()


VALUES = """
    from shop.tasks import *
    from datetime import UTC, date, datetime, time, timedelta
    from uuid import UUID
    value = {
        "at": datetime(2026, 11, 18, 12, tzinfo=UTC), "day": date(2026, 11, 18), "time": time(12, 30),
        "price": Decimal("12.50"), "id": UUID(int=7), "pause": timedelta(minutes=5), "size": Size.SMALL,
        "pair": (1, (2, [3])), "like a tag": {"__date__": "2026-11-18"},
    }
"""


def test_values_that_json_lacks_travel(shop: Project) -> None:
    ids = shop.evaluate(
        VALUES
        + """
    results = [same.enqueue(value, again=value), same_later.enqueue(value), once_a_day.enqueue(value["day"])]
    assert results[0].args == [value] and results[0].kwargs == {"again": value}
    assert once_a_day.enqueue(value["day"]).id == results[2].id
    answer([each.id for each in results])
    """
    )
    shop.manage("holdfast", "worker", "--drain")
    shop.evaluate(
        VALUES
        + f"""
    one, other, day = same.get_result("{ids[0]}"), same_later.get_result("{ids[1]}"), once_a_day.get_result("{ids[2]}")
    assert one.args == [value] and one.kwargs == {{"again": value}}, one
    assert one.return_value == value == other.return_value, (one.errors, other.errors)
    assert repr(one.return_value) == repr(value)
    assert day.return_value == value["day"]
    answer(1)
    """
    )
    shown = shop.manage("holdfast", "jobs", "show", ids[0], "-o", "json")
    assert '{"__decimal__": "12.50"}' in json.dumps(json.loads(shown))


def test_a_task_is_a_durable_function_by_its_context(shop: Project) -> None:
    ids = shop.evaluate(
        "from shop.tasks import *\nanswer([sell.enqueue(7).id, sell_async.enqueue(8).id])"
    )
    shop.manage("holdfast", "worker", "--drain")
    shop.evaluate(
        """
        from django.db import connection, transaction
        from holdfast_django import app
        try:
            with transaction.atomic():
                app.signal(connection, "paid", key=7, data="undone")
                raise InterruptedError
        except InterruptedError:
            pass
        with transaction.atomic():
            app.signal(connection, "paid", key=7, data="in cash")
            app.signal(connection, "paid", key=8, data="by card")
        answer(None)
        """
    )
    shop.manage("holdfast", "worker", "--drain")
    found, orders = shop.evaluate(
        f"""
        from shop.tasks import *
        results = [sell.get_result({ids[0]!r}), sell_async.get_result({ids[1]!r})]
        orders = list(Order.objects.order_by("name").values_list("name", flat=True))
        answer([[each.return_value for each in results], orders])
        """
    )
    assert found == ["order 7, in cash", "order 8, by card"]
    assert orders == ["order 7", "order 8"]


def test_a_task_exists_if_and_only_if_its_transaction_commits(shop: Project) -> None:
    answer = shop.evaluate(
        """
        from django.db import transaction
        from shop.models import Order
        from shop.tasks import *
        ids = []
        try:
            with transaction.atomic():
                Order.objects.create(name="undone")
                ids.append(add.enqueue(1, 1).id)
                raise InterruptedError
        except InterruptedError:
            pass
        with transaction.atomic():
            Order.objects.create(name="kept")
            ids.append(add.enqueue(2, 2).id)
            try:
                with transaction.atomic():
                    ids.append(add.enqueue(3, 3).id)
                    raise InterruptedError
            except InterruptedError:
                pass
            inside = add.get_result(ids[1]).status
        answer([inside, ids])
        """
    )
    inside, (undone, kept, savepoint) = answer
    assert inside == "READY"
    shop.manage("holdfast", "worker", "--drain")
    jobs = shop.manage("holdfast", "jobs", "list", "-o", "json")
    assert kept in jobs
    assert undone not in jobs
    assert savepoint not in jobs


@ON_SQLITE
def test_the_task_of_a_killed_worker_is_run_by_another(shop: Project, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    id = shop.evaluate(
        f"from shop.tasks import wait_for\nanswer(wait_for.enqueue({str(gate)!r}).id)"
    )
    words = ("holdfast", "worker", "--name", "first")
    with shop.running(*words) as worker:
        wait_until(lambda: list(tmp_path.glob("gate.*")))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    gate.touch()
    shop.manage("holdfast", "jobs", "list", "state:running")
    expire_leases(shop)
    shop.manage("holdfast", "reap")
    shop.manage("holdfast", "jobs", "run-now", id)
    shop.manage("holdfast", "worker", "--drain", "--name", "second")
    shop.write("shown.py", SHOWN)
    found = shop.evaluate(
        f"""
        from shown import show
        from shop.tasks import wait_for
        answer([show({id!r}), wait_for.get_result({id!r}).worker_ids])
        """
    )
    assert (found[0]["status"], found[0]["value"]) == ("SUCCESSFUL", "went on")
    assert [each.split("-")[0] for each in found[1]] == ["first", "second"]


@ON_POSTGRES
def test_a_worker_that_comes_back_after_its_lease_changes_nothing_of_its_task(
    shop: Project, tmp_path: Path
) -> None:
    id = shop.evaluate(f"from shop.tasks import sign\nanswer(sign.enqueue('{tmp_path}/task').id)")
    with shop.running("holdfast", "worker", "--name", "first") as first:
        wait_until((tmp_path / f"task.{first.pid}").exists)
        freeze(first, shop.folder / "shop.sqlite3")
        expire_leases(shop)
        shop.manage("holdfast", "reap")
        with shop.running("holdfast", "worker", "--name", "second") as second:
            wait_until((tmp_path / f"task.{second.pid}").exists)
            running = whole_result(shop, id)
            first.send_signal(signal.SIGCONT)
            (tmp_path / f"task.{first.pid}.go").touch()
            wait_until((tmp_path / f"task.{first.pid}.ended").exists)
            # A worker that stops writes what its tasks have returned, or learns that it may not.
            first.terminate()
            assert first.wait(PATIENCE_S) == 0
            assert whole_result(shop, id) == running
            (tmp_path / f"task.{second.pid}.go").touch()
            wait_for_end(shop, id)
    assert (running["status"], running["value"]) == ("RUNNING", None)
    result = whole_result(shop, id)
    assert (result["status"], result["value"]) == ("SUCCESSFUL", second.pid)
    assert result["worker_ids"] == running["worker_ids"]
    assert [each.split("-")[0] for each in result["worker_ids"]] == ["first", "second"]


def whole_result(shop: Project, id: str) -> dict[str, Any]:
    """Everything that a task's result says."""
    found: dict[str, Any] = shop.evaluate(
        f"""
        from holdfast_django.tasks_api import task_backends
        found = task_backends["default"].get_result({id!r})
        names = ("status", "attempts", "worker_ids", "enqueued_at", "started_at", "last_attempted_at", "finished_at")
        errors = [[each.exception_class_path, each.traceback] for each in found.errors]
        answer({{"value": found._return_value, "errors": errors}} | {{name: getattr(found, name) for name in names}})
        """
    )
    return found


def wait_for_end(shop: Project, id: str) -> None:
    """Wait until a task has ended, in one process of the project."""
    shop.evaluate(
        f"""
        import time
        from holdfast_django.tasks_api import task_backends
        while not task_backends["default"].get_result({id!r}).is_finished:
            time.sleep(0.02)
        answer(None)
        """
    )


def expire_leases(shop: Project) -> None:
    """Let the time of every lease run out, as it would within a minute."""
    shop.evaluate(
        """
        from django.db import connection
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute("update holdfast_lease set expires_at = 0")
                cursor.execute("update holdfast_worker set seen_at = 0")
            else:
                cursor.execute("update holdfast.lease set expires_at = now() - interval '1 hour'")
                cursor.execute("update holdfast.worker set seen_at = now() - interval '1 hour'")
        answer(None)
        """
    )


def test_a_worker_of_one_queue_leaves_the_others_alone(sqlite_project: Project) -> None:
    shop = prepared(sqlite_project)
    ids = shop.evaluate(
        "from shop.tasks import *\n"
        "answer([add.enqueue(1, 1).id, add.using(queue_name='mail').enqueue(2, 2).id])"
    )
    shop.manage("holdfast", "worker", "--drain", "--types", "mail:*")
    states = shop.evaluate(
        f"from shop.tasks import add\nanswer([str(add.get_result(each).status) for each in {ids!r}])"
    )
    assert states == ["READY", "SUCCESSFUL"]


def test_tasks_are_limited_by_an_argument(sqlite_project: Project) -> None:
    shop = prepared(sqlite_project)
    refused = shop.evaluate(
        """
        from holdfast import Limit
        from holdfast_django.tasks import task
        from holdfast_django.tasks_api import InvalidTask
        from shop.tasks import alone
        import copy, shop.tasks
        ids = [alone.enqueue("a", number=n).id for n in range(3)] + [alone.enqueue("b").id]
        assert copy.deepcopy(alone) == alone
        try:
            task(limits=[Limit(1, by="customer")])(shop.tasks.add.func)
        except InvalidTask as error:
            answer(str(error))
        """
    )
    assert "by='customer' is not an argument of the task, which has a, b" in refused
    shop.manage("holdfast", "worker", "--drain")
    assert shop.manage("holdfast", "jobs", "list", "state:completed", "-o", "id").count("-") == 16


def test_several_processes_run_tasks(sqlite_project: Project) -> None:
    shop = prepared(sqlite_project)
    shop.evaluate("from shop.tasks import *\nanswer([add.enqueue(n, n).id for n in range(20)])")
    said = shop.manage("holdfast", "worker", "--processes", "2", "--drain", "--settings", "config")
    assert "worker process" in said
    assert "20" in shop.manage("holdfast", "status")


def test_a_worker_with_reload_picks_up_a_change(sqlite_project: Project) -> None:
    shop = prepared(sqlite_project)
    with shop.running("holdfast", "worker", "--reload") as worker:
        wait_until(lambda: "worker_started" in shop.log)
        shop.write("shop/tasks.py", TASKS.replace("return a + b", "return [a, b, 'changed']"))
        wait_until(lambda: shop.log.count("worker_started") == 2)
        id = shop.evaluate("from shop.tasks import add\nanswer(add.enqueue(1, 2).id)")
        wait_for_end(shop, id)
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0
    assert "changed" in shop.manage("holdfast", "jobs", "show", id)


def test_two_backends_keep_their_results_apart(sqlite_project: Project) -> None:
    shop = prepared(sqlite_project)
    shop.configure('TASKS["bulk"] = TASKS["default"] | {"QUEUES": []}\n')
    answer = shop.evaluate(
        """
        from holdfast_django.tasks_api import TaskResultDoesNotExist, task_backends
        from shop.tasks import add
        id = add.using(backend="bulk", queue_name="any queue at all").enqueue(1, 2).id
        try:
            task_backends["default"].get_result(id)
        except TaskResultDoesNotExist:
            answer(id)
        """
    )
    shop.manage("holdfast", "worker", "--drain")
    found = shop.evaluate(
        f"""
        from holdfast_django.tasks_api import task_backends
        found = task_backends["bulk"].get_result({answer!r})
        answer([found.backend, found.task.queue_name, found.return_value])
        """
    )
    assert found == ["bulk", "any queue at all", 3]


def test_durable_functions_are_started_and_signalled_in_djangos_transactions(shop: Project) -> None:
    shop.write(
        "shop/tasks.py",
        """
        from django.db import connection, transaction
        from holdfast import SyncJob
        from holdfast_django import app
        from shop.models import Order

        def place(name: str) -> int:
            with transaction.atomic():
                return Order.objects.get_or_create(name=name)[0].pk

        @app.job("order.approve")
        def approve(job: SyncJob[str]) -> str:
            job.step("place", place, job.input)
            return job.wait_for("approved", key=job.input, returns=str)
        """,
    )
    id = shop.evaluate(
        """
        from django.db import connection, transaction
        from holdfast_django import app
        from shop.tasks import approve
        with transaction.atomic():
            answer(app.start(connection, approve, "hat").id)
        """
    )
    shop.manage("holdfast", "worker", "--drain")
    signalled = """
        from django.db import connection, transaction
        from holdfast_django import app
        try:
            with transaction.atomic():
                app.signal(connection, "approved", key="hat", data="by nobody")
                raise InterruptedError
        except InterruptedError:
            pass
        with transaction.atomic():
            answer(app.signal(connection, "approved", key="hat", data="by ana"))
        """
    assert shop.evaluate(signalled) is True
    shop.manage("holdfast", "worker", "--drain")
    found = shop.evaluate(
        f"""
        from holdfast_django import app
        from shop.models import Order
        answer([app.chains.get({id!r}).output, Order.objects.count()])
        """
    )
    assert found == ["by ana", 1]
