"""Celery's look-alikes in a Django project: what is started there, and in whose transaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.django.conftest import django_python as django_python
from tests.django.conftest import project as project
from tests.django.conftest import sqlite_project as sqlite_project
from tests.django.project import Project

APP = """
    from holdfast_celery import Celery
    from holdfast_django import database_url

    app = Celery("shop", url=database_url)
    app.autodiscover_tasks()
"""
SETTINGS_APP = (
    APP
    + """
    app.config_from_object("django.conf:settings", namespace="CELERY")
"""
)
TASKS = """
    from holdfast_celery import shared_task
    from shop.models import Order

    @shared_task
    def place(name):
        return Order.objects.create(name=name).name

    @shared_task(bind=True, max_retries=1)
    def flaky(self):
        if not self.request.retries:
            raise self.retry(countdown=0)
        return self.request.retries
"""
STARTED = """
    from django.db import transaction
    from shop.celery import app
    from shop.models import Order
    from shop.tasks import place

    class Undone(Exception):
        pass

    def undo(function, *args, using="default"):
        try:
            with transaction.atomic(using=using):
                function(*args)
                raise Undone
        except Undone:
            pass

    def start():
        \"\"\"Start a task in every situation; return the names of those that are there in the end.\"\"\"
        place.delay("at once")
        place.delay_on_commit("at once, on commit")
        with transaction.atomic():
            Order.objects.create(name="written before")
            place.delay("joined")
            assert place.delay_on_commit("joined, on commit") is None
            undo(place.delay, "of a savepoint")
        undo(place.delay, "undone")
        undo(place.delay_on_commit, "undone, on commit")
        undo(place.delay, "in a transaction elsewhere", using="other")
        return names()

    def names():
        # In a test whose database is in memory, only Django's connection leads there.
        tx = transaction.get_connection()
        return sorted(each.input["args"][0] for each in app.jobs.list(limit=100, tx=tx))
"""
KEPT = [
    "at once",
    "at once, on commit",
    "in a transaction elsewhere",
    "joined",
    "joined, on commit",
]
TESTS = """
    from django.db import connection
    from django.test import TestCase, TransactionTestCase
    from holdfast_django.test_cases import RunsTasks
    from shop.models import Order
    from shop.starts import start
    from shop.tasks import flaky, place

    EXPECTED = {expected}

    class Joined(RunsTasks, TestCase):
        databases = {{"default", "other"}}

        def test_starts_are_those_of_production(self):
            self.assertEqual(start(), EXPECTED)
            self.run_tasks()
            self.assertEqual(Order.objects.count(), len(EXPECTED) + 1)

        def test_results_can_be_read_when_the_tasks_have_run(self):
            result = place.delay("one")
            self.assertEqual(result.status, "PENDING")
            self.run_tasks()
            self.assertEqual((result.status, result.get(timeout=1)), ("SUCCESS", "one"))

        def test_a_task_is_retried_within_the_test_s_transaction(self):
            result = flaky.delay()
            self.run_tasks()
            self.assertEqual(result.get(timeout=1), 1)

    class Committed(RunsTasks, TransactionTestCase):
        databases = {{"default", "other"}}

        def test_starts_are_those_of_production(self):
            self.assertEqual(start(), EXPECTED)
            result = place.delay("one more")
            self.run_tasks()
            self.assertEqual(result.get(timeout=1), "one more")
            self.assertEqual(Order.objects.count(), len(EXPECTED) + 2)

    class WithoutKit(TestCase):
        def test_a_start_is_rolled_back_with_the_test(self):
            place.delay("of a test")

    class WithoutKitCommitted(TransactionTestCase):
        def test_the_database_can_be_dropped_afterwards(self):
            place.delay("of another test")
"""


@pytest.fixture
def shop(project: Project, tmp_path: Path) -> Project:
    """A project with Celery's look-alikes."""
    return with_celery(project, tmp_path)


def with_celery(project: Project, tmp_path: Path) -> Project:
    """Give a project an application of the look-alikes, and a second database that is not Holdfast's."""
    project.configure(
        f"""
        import sys
        sys.modules["django_tasks"] = None  # projects that use Celery need not have it
        HOLDFAST_APP = "shop.celery.app"
        INSTALLED_APPS = ["holdfast_django", "shop"]
        del TASKS
        DATABASES["other"] = {{
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": {str(tmp_path / "other.sqlite3")!r},
            "TEST": {{"NAME": {str(tmp_path / "other.test.sqlite3")!r}}},
        }}
        """
    )
    project.write("shop/celery.py", APP)
    project.write("shop/tasks.py", TASKS)
    project.write("shop/starts.py", STARTED)
    project.manage("migrate", "--run-syncdb")
    return project


def test_a_start_joins_the_open_transaction_and_commits_at_once_where_none_is(
    shop: Project,
) -> None:
    assert shop.evaluate("from shop.starts import start\nanswer(start())") == KEPT
    assert shop.evaluate("from shop.starts import names\nanswer(names())") == KEPT
    shop.manage("holdfast", "worker", "--drain")
    found = shop.evaluate(
        "from shop.models import Order\nanswer(sorted(each.name for each in Order.objects.all()))"
    )
    assert found == sorted([*KEPT, "written before"])


def test_the_test_kit_joins_where_production_does(shop: Project) -> None:
    shop.write("shop/tests.py", TESTS.format(expected=json.dumps(KEPT)))
    said = shop.manage("test", "shop")
    assert "\nOK" in said
    assert "Ran 6 tests" in said


def test_the_test_kit_does_the_same_in_memory(sqlite_project: Project, tmp_path: Path) -> None:
    shop = with_celery(sqlite_project, tmp_path)
    shop.configure('for each in DATABASES.values():\n    each.pop("TEST")\n')
    shop.write("shop/tests.py", TESTS.format(expected=json.dumps(KEPT)))
    said = shop.manage("test", "shop")
    assert "\nOK" in said
    assert "Ran 6 tests" in said


def test_the_orm_works_in_hooks_signals_and_sync_middlewares(shop: Project) -> None:
    shop.write(
        "shop/tasks.py",
        """
        from holdfast_celery import Task, shared_task
        from holdfast_celery.signals import task_prerun
        from shop.celery import app
        from shop.models import Order

        class Noting(Task):
            def on_success(self, retval, task_id, args, kwargs):
                Order.objects.create(name="hook")

        @task_prerun.connect
        def note(task, **named):
            Order.objects.create(name="signal")

        @app.middleware
        def around(job, next):
            Order.objects.create(name="middleware")
            return next()

        @shared_task(base=Noting)
        def place(name):
            return Order.objects.create(name=name).name
        """,
    )
    shop.evaluate("from shop.tasks import place\nplace.delay('task')\nanswer(None)")
    shop.manage("holdfast", "worker", "--drain")
    found = shop.evaluate(
        "from shop.models import Order\nanswer([each.name for each in Order.objects.order_by('pk')])"
    )
    assert found == ["middleware", "signal", "task", "hook"]


def test_an_engine_is_known_by_the_vendor_of_its_connections(
    project: Project, tmp_path: Path
) -> None:
    project.write("measured/__init__.py", "")
    project.configure(
        """
        wrapped = DATABASES["default"]["ENGINE"]
        DATABASES["default"]["ENGINE"] = "measured"
        """
    )
    project.write(
        "measured/base.py",
        """
        from importlib import import_module
        from config import wrapped

        class DatabaseWrapper(import_module(f"{wrapped}.base").DatabaseWrapper):
            pass
        """,
    )
    shop = with_celery(project, tmp_path)
    assert shop.evaluate("from shop.starts import start\nanswer(start())") == KEPT


def test_settings_may_import_the_package_that_has_the_application(shop: Project) -> None:
    shop.write("shop/__init__.py", "from shop.celery import app as celery_app")
    shop.write("shop/celery.py", SETTINGS_APP)
    settings = shop.folder / "config.py"
    own = settings.read_text(encoding="utf-8")
    settings.write_text(f"import shop\n{own}\nCELERY_TASK_TIME_LIMIT = 30\n", encoding="utf-8")
    assert shop.evaluate("from shop.starts import start\nanswer(start())") == KEPT
    found = shop.evaluate(
        """
        from holdfast_django import database_url
        from shop.celery import app
        answer([app.conf.task_time_limit, app.url == database_url()])
        """
    )
    assert found == [30, True]
    shop.manage("holdfast", "worker", "--drain")
    shop.write("shop/tests.py", TESTS.format(expected=json.dumps(KEPT)))
    assert "Ran 6 tests" in shop.manage("test", "shop")


def test_a_trace_has_the_frames_of_the_task_alone(shop: Project) -> None:
    shop.write(
        "shop/tasks.py",
        """
        from holdfast_celery import shared_task

        @shared_task
        def breaks():
            raise ValueError("broken")
        """,
    )
    id = shop.evaluate("from shop.tasks import breaks\nanswer(breaks.delay().id)")
    shop.manage("holdfast", "worker", "--drain")
    trace = shop.evaluate(f"from shop.celery import app\nanswer(app.AsyncResult({id!r}).traceback)")
    assert trace.splitlines()[0] == "Traceback (most recent call last):"
    assert trace.splitlines()[-1] == "ValueError: broken"
    assert trace.count("  File ") == 1
    assert "shop/tasks.py" in trace


def test_a_worker_and_other_commands_are_called_from_code(shop: Project) -> None:
    found = shop.evaluate(
        """
        from django.core.management import call_command
        from shop.tasks import place

        done, later = place.delay("now"), place.apply_async(("later",), countdown=3600)
        call_command("holdfast", "worker", "--slots", "4", "--drain")
        call_command("holdfast", "jobs", "cancel", "state:pending", "--yes")
        answer([done.status, later.status])
        """
    )
    assert found == ["SUCCESS", "REVOKED"]
