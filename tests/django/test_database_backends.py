"""What people know from django-tasks' database backend, asked of ours: visibility, queues, locks, pruning, commands."""

from __future__ import annotations

import pytest

from tests.django.project import PATIENCE_S, Project

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)

TASKS = """
    from holdfast_django.tasks import task

    class Stubborn(Exception):
        def __init__(self, value):
            super().__init__(value, lambda: None)
        def __str__(self):
            raise RuntimeError("has no words")

    @task
    def add(a, b=0):
        return a + b

    @task
    async def add_later(a, b=0):
        return a + b

    @task
    def stumble():
        raise Stubborn(object())
"""
VIEWS = """
    from django.http import JsonResponse
    from django.urls import path
    from shop.tasks import add

    def ask(request):
        return JsonResponse({"id": add.enqueue(6, b=7).id})

    async def ask_later(request):
        return JsonResponse({"id": (await add.aenqueue(6, b=7)).id})

    def look(request, id):
        found = add.get_result(id)
        value = found.return_value if found.is_finished else None
        return JsonResponse({"status": str(found.status), "value": value})

    urlpatterns = [path("ask", ask), path("ask-later", ask_later), path("look/<id>", look)]
"""
TESTS = """
    from time import time_ns
    from uuid import uuid4

    import django
    from django.db import connection, connections, transaction
    from django.test import TransactionTestCase
    from holdfast.commands.retention import FIRST_ID, Ages, remove_chains, remove_dead_letters
    from holdfast_django import app
    from holdfast_django.tasks_api import TaskResultDoesNotExist, task_backends
    from holdfast_django.test_cases import RunsTasks
    from shop.tasks import add, add_later, stumble

    LOGGER = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    DAY = 86_400_000_000
    JOBS = "holdfast_jobs" if connection.vendor == "sqlite" else "holdfast.jobs"
    QUEUE = "holdfast_queue" if connection.vendor == "sqlite" else "holdfast.queue"

    def seen_by_others():
        other = connections.create_connection("default")
        try:
            with other.cursor() as cursor:
                cursor.execute(f"select count(*) from {JOBS}")
                return cursor.fetchone()[0]
        finally:
            other.close()

    def prune(days, dead_letter_days, ahead_days):
        now = time_ns() // 1000 + ahead_days * DAY
        ages = Ages(chains=days, dead_letters=dead_letter_days, runs=30)
        store = app.database.store
        pages = [
            app.database.run(remove(store, ages, FIRST_ID, 1000, now))
            for remove in (remove_chains, remove_dead_letters)
        ]
        return sum(page.removed for page in pages)

    class BackendTests(RunsTasks, TransactionTestCase):
        def test_a_result_is_a_snapshot_until_it_is_refreshed(self):
            for each in (add, add_later):
                result = each.enqueue(1, b=2)
                self.run_tasks()
                self.assertEqual((str(result.status), result.started_at), ("READY", None))
                result.refresh()
                self.assertEqual((str(result.status), result.return_value), ("SUCCESSFUL", 3))
                self.assertLessEqual(result.enqueued_at, result.started_at)
                self.assertLessEqual(result.started_at, result.finished_at)

        async def test_results_are_read_from_coroutines(self):
            backend = task_backends["default"]
            result = await add.aenqueue(1)
            found = await backend.aget_result(result.id)
            self.assertEqual((found.id, found.args), (result.id, [1]))
            await self.holdfast.run_until_idle_async()
            await result.arefresh()
            self.assertEqual(result.return_value, 1)
            for unknown in ("123", str(uuid4())):
                with self.assertRaises(TaskResultDoesNotExist):
                    await backend.aget_result(unknown)

        def test_one_request_enqueues_and_another_reads_the_result(self):
            for path in ("/ask", "/ask-later"):
                id = self.client.get(path).json()["id"]
                self.assertEqual(self.client.get(f"/look/{id}").json(), {"status": "READY", "value": None})
                self.run_tasks()
                self.assertEqual(self.client.get(f"/look/{id}").json(), {"status": "SUCCESSFUL", "value": 13})

        def test_other_connections_see_a_task_after_the_commit(self):
            with transaction.atomic():
                result = add.enqueue(1)
                self.assertIsNotNone(result.enqueued_at)
                self.assertEqual(add.get_result(result.id).id, result.id)
                self.assertEqual(seen_by_others(), 0)
            self.assertEqual(seen_by_others(), 1)

        def test_enqueueing_is_logged_with_the_id(self):
            with self.assertLogs(LOGGER, level="DEBUG") as logged:
                result = add.enqueue(1)
            self.assertTrue(any(result.id in each for each in logged.output))

        def test_a_batch_runs_everything_and_an_empty_one_nothing(self):
            self.assertEqual(self.run_tasks().counters["claimed"], 0)
            results = [add.enqueue(n) for n in range(3)] + [stumble.enqueue()]
            self.run_tasks()
            for each in results:
                each.refresh()
            self.assertEqual([str(each.status) for each in results], ["SUCCESSFUL"] * 3 + ["FAILED"])

        def test_an_exception_without_words_is_recorded_all_the_same(self):
            result = stumble.enqueue()
            self.run_tasks()
            result.refresh()
            self.assertEqual(result.errors[0].exception_class_path, "shop.tasks.Stubborn")
            self.assertIn("stumble", result.errors[0].traceback)

        def test_what_another_connection_has_locked_is_passed_over(self):
            if connection.vendor == "sqlite":
                return  # one writer at a time: nothing is locked by row
            held, free = add.enqueue(1), add.enqueue(2)
            other = connections.create_connection("default")
            try:
                other.set_autocommit(False)
                with other.cursor() as cursor:
                    cursor.execute(f"select * from {QUEUE} where job_id = %s for update", [held.id])
                self.run_tasks()
                for each in (held, free):
                    each.refresh()
                self.assertEqual([str(each.status) for each in (held, free)], ["READY", "SUCCESSFUL"])
            finally:
                other.rollback()
                other.close()
            self.run_tasks()
            held.refresh()
            self.assertEqual(str(held.status), "SUCCESSFUL")

        def test_old_results_are_pruned_and_failed_ones_kept_longer(self):
            done, failed = add.enqueue(1), stumble.enqueue()
            self.run_tasks()
            waiting = add.enqueue(2)
            self.assertEqual(prune(30, 90, ahead_days=29), 0)
            self.assertEqual(prune(30, 90, ahead_days=31), 1)
            with self.assertRaises(TaskResultDoesNotExist):
                done.refresh()
            failed.refresh()
            self.assertEqual(prune(30, 90, ahead_days=91), 1)
            with self.assertRaises(TaskResultDoesNotExist):
                failed.refresh()
            self.assertEqual(prune(1, 1, ahead_days=1000), 0)
            waiting.refresh()
            self.assertEqual(str(waiting.status), "READY")
"""


@pytest.fixture
def shop(project: Project) -> Project:
    """A project with tasks and views."""
    project.write("shop/tasks.py", TASKS)
    project.write("urls.py", VIEWS)
    project.configure('ROOT_URLCONF = "urls"\nALLOWED_HOSTS = ["*"]\n')
    return project


def test_what_a_database_backend_does(shop: Project) -> None:
    shop.write("shop/tests.py", TESTS)
    said = shop.manage("test", "shop")
    assert "\nOK" in said
    assert "skipped" not in said


def test_the_worker_refuses_words_that_make_no_sense(sqlite_project: Project) -> None:
    sqlite_project.write("shop/tasks.py", TASKS)
    sqlite_project.manage("migrate", "--run-syncdb")
    for words, code, said in (
        (("--types", "nowhere:*"), 3, "no handler for 'nowhere:*'"),
        (("--slots", "-1"), 2, "-1"),
        (("--slots", "many"), 2, "many"),
    ):
        refused = sqlite_project.try_to_manage("holdfast", "worker", "--drain", *words)
        assert refused.returncode == code, refused.stdout
        assert said in refused.stdout


def test_a_task_whose_code_is_gone_waits_and_says_so(sqlite_project: Project) -> None:
    sqlite_project.write("shop/tasks.py", TASKS)
    sqlite_project.manage("migrate", "--run-syncdb")
    id = sqlite_project.evaluate("from shop.tasks import add\nanswer(add.enqueue(1).id)")
    sqlite_project.write("shop/tasks.py", TASKS.replace("def add(", "def plus("))
    sqlite_project.manage("holdfast", "worker", "--drain")
    said = sqlite_project.manage("holdfast", "jobs", "show", id)
    assert "No live worker handles shop.tasks.add" in said
    sqlite_project.write("shop/tasks.py", TASKS)
    sqlite_project.manage("holdfast", "worker", "--drain")
    value = sqlite_project.evaluate(
        f"from shop.tasks import add\nanswer(add.get_result({id!r}).return_value)"
    )
    assert value == 1


@pytest.mark.parametrize("words", [("--app=shop.nothing:app",), ("--app", "shop.nothing:app")])
def test_a_command_takes_the_application_that_it_names(
    words: tuple[str, ...], sqlite_project: Project
) -> None:
    refused = sqlite_project.try_to_manage("holdfast", "status", *words)
    assert "module shop.nothing not found" in refused.stdout
    assert refused.returncode == 2
