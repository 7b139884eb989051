"""The contract of a backend of Django's tasks framework, as tests that any backend can run.

    class MyBackendTests(TaskBackendContract, TransactionTestCase):
        def run_tasks(self):
            ...  # run what is due until nothing is

Put `tests.django.contract_tasks` where your workers find tasks. Works with Django 6.0 and newer, and with the
backport `django-tasks` on older ones.
"""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.db import transaction
from django.test import TransactionTestCase
from django.utils import timezone

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskResult, TaskResultStatus, task, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import TaskResult, TaskResultStatus, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

from tests.django import contract_tasks

if TYPE_CHECKING:
    AnyResult = TaskResult[..., Any]
    _Base = TransactionTestCase
else:
    _Base = object

READY = TaskResultStatus.READY
FAILED = TaskResultStatus.FAILED
SUCCESSFUL = TaskResultStatus.SUCCESSFUL


def _without_context(name: str) -> None:
    """A task that has no place for the context."""


class TaskBackendContract(_Base):
    """Put before `TransactionTestCase`, for the backend in TASKS["default"].

    What a backend says it does not support is skipped, as Django lets it.
    """

    enqueues_in_transaction = True
    """Whether a rollback takes back what was enqueued; False skips those tests."""

    def run_tasks(self) -> None:
        """Run every task that is due until none is."""
        raise NotImplementedError

    def run_one_task(self) -> None:
        """Run one task, the next in line; skips the tests of the order unless it is overridden."""
        self.skipTest("run_one_task is not overridden")

    def setUp(self) -> None:
        """Find the backend."""
        super().setUp()
        self.backend = task_backends["default"]

    def finished(self, result: AnyResult) -> AnyResult:
        """Run what is due and return a result as it is then; skips what a backend without results cannot show."""
        self.run_tasks()
        if not result.is_finished:
            self.need("supports_get_result")
            result.refresh()
        return result

    def need(self, capability: str) -> None:
        """Skip a test of something that the backend says it does not support."""
        if not getattr(self.backend, capability):
            self.skipTest(f"the backend has {capability} = False")

    # Running.

    def test_a_task_returns_its_value(self) -> None:
        result = self.finished(contract_tasks.echo.enqueue(1, "b", key=None))
        self.assertEqual(result.status, SUCCESSFUL)
        self.assertEqual(result.return_value, [[1, "b"], {"key": None}])
        self.assertEqual(result.errors, [])
        self.assertTrue(result.is_finished)

    def test_none_is_a_value_too(self) -> None:
        result = self.finished(contract_tasks.nothing.enqueue())
        self.assertEqual(result.status, SUCCESSFUL)
        self.assertIsNone(result.return_value)

    def test_many_tasks_run_once_each(self) -> None:
        results = [contract_tasks.echo.enqueue(number) for number in range(30)]
        self.assertEqual(len({each.id for each in results}), 30)
        values = [self.finished(each).return_value[0][0] for each in results]
        self.assertEqual(values, list(range(30)))
        self.assertEqual({each.attempts for each in results}, {1})

    def test_arguments_arrive_as_json_has_them(self) -> None:
        given: Any = ({"ü": [1.5, True, None]}, ["a", "b"], b"bytes", {"n": {"m": -(2**53)}})
        expected = [{"ü": [1.5, True, None]}, ["a", "b"], "bytes", {"n": {"m": -(2**53)}}]
        result = contract_tasks.echo.enqueue(*given)
        self.assertEqual(result.args, expected)
        self.assertEqual(self.finished(result).return_value[0], expected)

    def test_arguments_that_json_lacks_are_refused(self) -> None:
        for bad in (object(), {1, 2}, {"deep": [object()]}):
            with self.assertRaises((TypeError, ValueError)):
                contract_tasks.echo.enqueue(bad)

    def test_async_tasks_run(self) -> None:
        self.need("supports_async_task")
        result = self.finished(contract_tasks.echo_later.enqueue({"n": 1}))
        self.assertEqual(result.return_value, {"n": 1})

    def test_async_tasks_fail(self) -> None:
        self.need("supports_async_task")
        self.assert_refused(self.finished(contract_tasks.fail_later.enqueue()))

    async def test_tasks_are_enqueued_from_coroutines(self) -> None:
        result = await contract_tasks.echo.aenqueue(7)
        self.assertTrue(result.id)
        if self.backend.supports_get_result:
            self.assertEqual((await contract_tasks.echo.aget_result(result.id)).id, result.id)
            await result.arefresh()

    def test_a_task_gets_its_context(self) -> None:
        result = contract_tasks.describe.enqueue(name="x")
        expected = {"attempt": 1, "id": result.id, "name": "x"}
        self.assertEqual(self.finished(result).return_value, expected)

    # Failing.

    def assert_refused(self, result: AnyResult) -> None:
        """Assert that a task failed with the exception of the contract's own."""
        self.assertEqual(result.status, FAILED)
        self.assertTrue(result.is_finished)
        self.assertIs(result.errors[-1].exception_class, contract_tasks.TaskRefused)
        self.assertIn("contract_tasks.py", result.errors[-1].traceback)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value

    def test_an_exception_fails_its_task(self) -> None:
        result = self.finished(contract_tasks.fail.enqueue("see here"))
        self.assert_refused(result)
        self.assertIn("see here", result.errors[-1].traceback)
        self.assertEqual(result.attempts, 1)

    def test_the_failure_of_one_task_does_not_touch_others(self) -> None:
        results = [
            each.enqueue() for each in (contract_tasks.fail, contract_tasks.nothing) for _ in "ab"
        ]
        states = [self.finished(each).status for each in results]
        self.assertEqual(states, [FAILED, FAILED, SUCCESSFUL, SUCCESSFUL])

    def test_a_task_that_exits_fails_and_its_worker_goes_on(self) -> None:
        result = self.finished(contract_tasks.leave.enqueue())
        self.assertIs(result.errors[-1].exception_class, SystemExit)
        after = self.finished(contract_tasks.nothing.enqueue())
        self.assertEqual((result.status, after.status), (FAILED, SUCCESSFUL))

    def test_a_value_that_json_lacks_fails_its_task(self) -> None:
        result = self.finished(contract_tasks.return_an_object.enqueue())
        self.assertEqual(result.status, FAILED)
        self.assertIs(result.errors[-1].exception_class, TypeError)

    # Results.

    def test_a_result_is_found_by_its_id(self) -> None:
        self.need("supports_get_result")
        result = contract_tasks.echo.enqueue(1)
        found = contract_tasks.echo.get_result(result.id)
        self.assertEqual((found.id, found.task, found.args), (result.id, result.task, [1]))
        self.assertEqual(found.backend, "default")
        self.assertEqual(self.backend.get_result(result.id).id, result.id)

    def test_a_result_before_its_end_has_no_value(self) -> None:
        result = contract_tasks.echo.enqueue()
        if result.is_finished:
            self.skipTest("the backend runs tasks immediately")
        self.assertEqual((result.status, result.attempts), (READY, 0))
        self.assertIsNone(result.finished_at)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value

    def test_a_result_has_its_times_and_worker(self) -> None:
        result = self.finished(contract_tasks.nothing.enqueue())
        times = (result.enqueued_at, result.started_at, result.finished_at)
        known = [each for each in times if each is not None]
        self.assertEqual(len(known), 3)
        self.assertEqual(known, sorted(known))
        self.assertEqual(result.last_attempted_at, result.started_at)
        self.assertEqual((result.attempts, len(result.worker_ids)), (1, 1))
        self.assertTrue(all(result.worker_ids))

    def test_unknown_and_malformed_ids_have_no_result(self) -> None:
        self.need("supports_get_result")
        for unknown in ("", "123", "no id at all", str(uuid4()), "x" * 500):
            with self.assertRaises(TaskResultDoesNotExist):
                self.backend.get_result(unknown)

    def test_the_result_of_another_task_is_a_mismatch(self) -> None:
        self.need("supports_get_result")
        result = contract_tasks.nothing.enqueue()
        with self.assertRaises(TaskResultMismatch):
            contract_tasks.echo.get_result(result.id)

    # Order and time.

    def test_the_more_urgent_task_runs_first(self) -> None:
        self.need("supports_priority")
        self.need("supports_get_result")
        urgencies = (-100, 0, 100)
        results = [contract_tasks.echo.using(priority=each).enqueue(each) for each in urgencies]
        for position in (2, 1, 0):
            self.run_one_task()
            for each in results:
                each.refresh()
            ended = [each.is_finished for each in results]
            self.assertEqual(ended, [index >= position for index in range(3)])

    def test_a_task_waits_for_its_time(self) -> None:
        self.need("supports_defer")
        self.need("supports_get_result")
        now = timezone.now()
        later = contract_tasks.echo.using(run_after=now + timedelta(hours=1)).enqueue()
        due = contract_tasks.echo.using(run_after=now - timedelta(hours=1)).enqueue()
        self.assertEqual(self.finished(due).status, SUCCESSFUL)
        self.assertEqual(self.finished(later).status, READY)
        found = self.backend.get_result(later.id)
        self.assertEqual(found.task.run_after, now + timedelta(hours=1))

    # Transactions.

    def test_a_rollback_takes_back_what_was_enqueued(self) -> None:
        if not self.enqueues_in_transaction:
            self.skipTest("the backend has enqueues_in_transaction = False")
        self.need("supports_get_result")
        with self.assertRaises(InterruptedError), transaction.atomic():
            result = contract_tasks.echo.enqueue()
            raise InterruptedError
        self.run_tasks()
        with self.assertRaises(TaskResultDoesNotExist):
            self.backend.get_result(result.id)

    def test_a_commit_keeps_what_was_enqueued(self) -> None:
        with transaction.atomic():
            result = contract_tasks.echo.enqueue()
        self.assertEqual(self.finished(result).status, SUCCESSFUL)

    def test_a_refused_argument_leaves_the_transaction_usable(self) -> None:
        with transaction.atomic():
            with self.assertRaises(TypeError):
                contract_tasks.echo.enqueue(object())
            result = contract_tasks.echo.enqueue()
        self.assertEqual(self.finished(result).status, SUCCESSFUL)

    # Signals.

    def test_signals_come_in_order_from_the_backend(self) -> None:
        seen = self.watch_signals()
        result = self.finished(contract_tasks.nothing.enqueue())
        self.assertEqual([each[0] for each in seen], ["enqueued", "started", "finished"])
        self.assertEqual({each[1] for each in seen}, {type(self.backend)})
        self.assertEqual({each[2] for each in seen}, {result.id})
        self.assertEqual(seen[-1][3], SUCCESSFUL)

    def test_a_failure_is_signalled_as_one(self) -> None:
        seen = self.watch_signals()
        self.finished(contract_tasks.fail.enqueue())
        self.assertEqual((seen[-1][0], seen[-1][3]), ("finished", FAILED))

    def watch_signals(self) -> list[tuple[str, Any, str, Any]]:
        """Collect the signals of the test: their names, senders, ids and states."""
        seen: list[tuple[str, Any, str, Any]] = []
        named = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
        for name, signal in named.items():

            def receive(sender: Any, task_result: AnyResult, name: str = name, **_: Any) -> None:
                seen.append((name, sender, task_result.id, task_result.status))

            signal.connect(receive, weak=False)
            self.addCleanup(signal.disconnect, receive)
        return seen

    # Tasks that cannot be.

    def test_a_nested_function_is_no_task(self) -> None:
        with self.assertRaises(InvalidTask):
            task(lambda: None)

    def test_a_priority_out_of_range_is_refused(self) -> None:
        for bad in (-101, 101, 1.5):
            with self.assertRaises(InvalidTask):
                contract_tasks.echo.using(priority=bad)  # type: ignore[arg-type]

    def test_an_unknown_queue_is_refused(self) -> None:
        if not self.backend.queues:
            self.skipTest("the backend takes any queue")
        with self.assertRaises(InvalidTask):
            contract_tasks.echo.using(queue_name="no such queue")

    def test_a_task_with_context_has_a_place_for_it(self) -> None:
        with self.assertRaises(InvalidTask):
            task(takes_context=True)(_without_context)  # type: ignore[arg-type]

    def test_a_time_without_a_zone_is_refused(self) -> None:
        with self.assertRaises(InvalidTask), self.settings(USE_TZ=True):
            contract_tasks.echo.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001

    def test_what_using_changes_is_a_copy(self) -> None:
        self.need("supports_priority")
        changed = contract_tasks.echo.using(priority=10)
        self.assertEqual((changed.priority, contract_tasks.echo.priority), (10, 0))
        self.assertIsInstance(changed, self.backend.task_class)

    def test_a_task_can_be_copied_and_compared(self) -> None:
        same = copy.deepcopy(contract_tasks.echo)
        self.assertEqual(same, contract_tasks.echo)
        self.assertEqual(hash(same), hash(contract_tasks.echo))

    def test_the_backend_finds_nothing_wrong_with_its_settings(self) -> None:
        self.assertEqual([each for each in self.backend.check() if each.is_serious()], [])
