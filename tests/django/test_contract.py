"""The contract of task backends against ours: with committed tests, and in SQLite's database in memory."""

from __future__ import annotations

import pytest

from tests.django.project import PATIENCE_S, Project

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)

TESTS = """
    from django.test import TestCase, TransactionTestCase
    from holdfast_django.test_cases import RunsTasks
    from tests.django.task_contract import TaskBackendContract
    from tests.django.contract_tasks import echo, echo_later, fail
    from shop.models import Order

    class ContractTests(RunsTasks, TaskBackendContract, TransactionTestCase):
        def run_one_task(self):
            self.holdfast.run_one()

    class CaseTests(RunsTasks, TestCase):
        def test_tasks_run_in_the_transaction_of_the_test(self):
            results = [echo.enqueue(1), echo_later.enqueue(2), fail.enqueue()]
            self.run_tasks()
            for each in results:
                each.refresh()
            self.assertEqual([str(each.status) for each in results], ["SUCCESSFUL", "SUCCESSFUL", "FAILED"])

        def test_nothing_is_left_of_other_tests(self):
            self.assertEqual(self.holdfast.started(), [])

        def test_the_kit_moves_the_clock(self):
            from datetime import timedelta
            from django.utils import timezone
            result = echo.using(run_after=timezone.now() + timedelta(hours=2)).enqueue()
            self.run_tasks()
            result.refresh()
            self.assertEqual(str(result.status), "READY")
            self.holdfast.advance("3h")
            self.run_tasks()
            result.refresh()
            self.assertEqual(str(result.status), "SUCCESSFUL")
"""
ASYNC_TESTS = """
    from asgiref.sync import sync_to_async
    from django.db import connection
    from django.test import TestCase, TransactionTestCase
    from holdfast import CycleRun
    from holdfast_django import app
    from tests.django.contract_tasks import echo
    from holdfast_django.test_cases import RunsTasks

    @app.cycle("echoes", cron="0 8 * * *")
    def echoes(run: CycleRun) -> None:
        echo.enqueue("cycle")

    class InOneTransaction(RunsTasks, TestCase):
        async def test_tasks_and_cycles_run(self):
            result = await echo.aenqueue("async")
            await self.holdfast.run_until_idle_async()
            await result.arefresh()
            self.assertEqual(str(result.status), "SUCCESSFUL")
            await self.holdfast.run_cycle_async("echoes")
            found = await sync_to_async(self.holdfast.started)("tests.django.contract_tasks.echo")
            self.assertEqual(len(found), 2)

        async def test_what_would_block_the_loop_is_refused(self):
            with self.assertRaisesMessage(RuntimeError, "sync_to_async"):
                self.holdfast.started()

    class Committed(RunsTasks, TransactionTestCase):
        def test_the_kit_sees_what_a_cycle_has_started(self):
            self.holdfast.run_cycle("echoes")
            self.holdfast.assert_started("tests.django.contract_tasks.echo")
            self.holdfast.crash("tests.django.contract_tasks.echo")

        async def test_tasks_run(self):
            if connection.settings_dict["NAME"].startswith("file:"):
                self.skipTest("in memory")
            result = await echo.aenqueue("async")
            await self.holdfast.run_until_idle_async()
            await result.arefresh()
            self.assertEqual(str(result.status), "SUCCESSFUL")
"""
IMMEDIATE = """
    import django
    HOME = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    TASKS = {"default": {"BACKEND": f"{HOME}.backends.immediate.ImmediateBackend"}}
"""
IMMEDIATE_TESTS = """
    from django.test import TransactionTestCase
    from tests.django.task_contract import TaskBackendContract

    class ContractTests(TaskBackendContract, TransactionTestCase):
        enqueues_in_transaction = False

        def run_tasks(self):
            pass
"""
FROM_COROUTINES = """
    from django.test import TransactionTestCase
    from holdfast_django.test_cases import RunsTasks

    class KitTests(RunsTasks, TransactionTestCase):
        async def test_runs_are_refused(self):
            kit = self.holdfast
            for run in (kit.run_until_idle_async, kit.run_one_async, lambda: kit.run_cycle_async("any")):
                with self.assertRaisesMessage(RuntimeError, "Django's database is in memory"):
                    await run()
"""


def test_our_backend_keeps_the_contract(project: Project) -> None:
    project.write("shop/tests.py", TESTS)
    said = project.manage("test", "shop", "-v", "2")
    assert "skipped" not in said
    assert "\nOK" in said


def test_our_backend_keeps_the_contract_in_memory(sqlite_project: Project) -> None:
    sqlite_project.configure('DATABASES["default"].pop("TEST")\n')
    sqlite_project.write("shop/tests.py", TESTS)
    assert "\nOK" in sqlite_project.manage("test", "shop")


def test_the_kit_runs_tasks_in_async_tests_and_leaves_no_connection(project: Project) -> None:
    project.configure('DATABASES["default"]["CONN_MAX_AGE"] = None\n')
    project.write("shop/tests.py", ASYNC_TESTS)
    assert "\nOK" in project.manage("test", "shop")


def test_the_kit_runs_tasks_in_async_tests_in_memory(sqlite_project: Project) -> None:
    sqlite_project.configure('DATABASES["default"].pop("TEST")\n')
    sqlite_project.write("shop/tests.py", ASYNC_TESTS)
    assert "\nOK" in sqlite_project.manage("test", "shop")


def test_the_kit_runs_nothing_from_coroutines_in_memory(sqlite_project: Project) -> None:
    sqlite_project.configure('DATABASES["default"].pop("TEST")\n')
    sqlite_project.write("shop/tests.py", FROM_COROUTINES)
    assert "\nOK" in sqlite_project.manage("test", "shop")


def test_djangos_own_backend_keeps_the_contract_where_it_claims_to(sqlite_project: Project) -> None:
    sqlite_project.configure(IMMEDIATE)
    sqlite_project.write("shop/tests.py", IMMEDIATE_TESTS)
    assert "OK (skipped=" in sqlite_project.manage("test", "shop")
