"""What programs see of Celery: each test runs against Celery itself and against the look-alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.from_celery.sides import Side


class CardDeclined(Exception):
    """An exception of the program's own, with more than a text."""

    def __init__(self, order: int, reason: str) -> None:
        super().__init__(order, reason)
        self.order = order

    def __str__(self) -> str:
        return f"order {self.args[0]} was declined: {self.args[1]}"


@pytest.fixture
def fail(side: Side) -> Any:
    """A task that raises what it is named."""

    @side.task(name="fail")
    def fail(kind: str) -> None:
        if kind == "own":
            raise CardDeclined(7, "stolen")
        raise {"value": ValueError, "key": KeyError, "os": ConnectionError}[kind]("broken")

    return fail


@pytest.fixture
def add(side: Side) -> Any:
    """A task that adds."""

    @side.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    return add


def test_a_failed_result_is_the_exception_and_its_text_is_the_message(
    side: Side, fail: Any
) -> None:
    result = side.end(fail.delay("value"))
    assert (result.status, result.state, result.failed()) == ("FAILURE", "FAILURE", True)
    assert (type(result.result).__name__, str(result.result)) == ("ValueError", "broken")
    assert isinstance(result.result, ValueError)
    assert isinstance(result.info, ValueError)
    assert (result.ready(), result.successful()) == (True, False)


def test_the_trace_is_in_traceback_alone(side: Side, fail: Any) -> None:
    result = side.end(fail.delay("value"))
    assert "File" not in str(result.result)
    assert "File" not in repr(result.result)
    assert result.traceback.startswith("Traceback (most recent call last):\n")
    assert result.traceback.rstrip().endswith("ValueError: broken")
    assert "test_likeness.py" in result.traceback


def test_get_raises_the_exception_of_the_task(side: Side, fail: Any) -> None:
    with pytest.raises(ValueError, match=r"^broken$"):
        side.get(fail.delay("value"))
    with pytest.raises(KeyError) as raised:
        side.get(fail.delay("key"))
    assert "broken" in str(raised.value)
    with pytest.raises(ConnectionError, match=r"^broken$"):
        side.get(fail.delay("os"))


def test_get_without_propagate_returns_the_exception(side: Side, fail: Any) -> None:
    error = side.get(fail.delay("value"), propagate=False)
    assert isinstance(error, ValueError)
    assert error.args == ("broken",)


def test_an_exception_of_the_program_can_be_caught_as_such(side: Side, fail: Any) -> None:
    with pytest.raises(CardDeclined) as raised:
        side.get(fail.delay("own"))
    assert str(raised.value) == "order 7 was declined: stolen"
    assert type(raised.value).__name__ == "CardDeclined"


def test_get_that_takes_too_long_raises_a_timeout(side: Side) -> None:
    exceptions = side.module("exceptions")
    unknown = side.module("result").AsyncResult("no-such-task", app=side.app)
    with pytest.raises(exceptions.TimeoutError):
        unknown.get(timeout=0.05)


def test_an_unknown_id_is_pending(side: Side) -> None:
    unknown = side.app.AsyncResult("11111111-2222-3333-4444-555555555555")
    assert (unknown.status, unknown.state, unknown.result) == ("PENDING", "PENDING", None)
    assert (unknown.ready(), unknown.successful(), unknown.failed()) == (False, False, False)
    assert unknown.traceback is None


def test_get_takes_celery_s_arguments(side: Side, add: Any) -> None:
    seen: list[tuple[str, Any]] = []
    result = add.delay(1, 2)
    assert side.get(result, interval=0.01, no_ack=True, follow_parents=True) == 3
    assert result.wait(timeout=10, propagate=True, interval=0.01) == 3
    result.get(callback=lambda id, value: seen.append((id, value)))
    assert seen == [(result.id, 3)]
    assert result.maybe_throw() == 3


def test_a_result_is_the_same_by_its_id(side: Side, add: Any) -> None:
    result = side.end(add.delay(1, 2))
    again = side.module("result").AsyncResult(result.id, app=side.app)
    assert (again.id, again.task_id, again.get(timeout=10)) == (result.id, result.id, 3)
    assert again == result
    assert (again.status, again.successful(), again.traceback) == ("SUCCESS", True, None)


def test_maybe_throw_raises_what_the_task_raised(side: Side, fail: Any) -> None:
    result = side.end(fail.delay("value"))
    with pytest.raises(ValueError, match="broken"):
        result.maybe_throw()


def test_apply_runs_a_task_in_the_caller(side: Side, add: Any, fail: Any) -> None:
    result = add.apply((1,), {"b": 2})
    assert (result.get(), result.result, result.status) == (3, 3, "SUCCESS")
    assert (result.ready(), result.successful(), result.failed()) == (True, True, False)
    assert isinstance(result.id, str)
    failed = fail.apply(("value",))
    assert (failed.status, failed.failed(), str(failed.result)) == ("FAILURE", True, "broken")
    assert failed.traceback.startswith("Traceback (most recent call last):\n")
    assert isinstance(failed.get(propagate=False), ValueError)
    with pytest.raises(ValueError, match="broken"):
        failed.get()
    with pytest.raises(ValueError, match="broken"):
        fail.apply(("value",), throw=True)


def test_apply_retries_at_once(side: Side) -> None:
    seen: list[int] = []

    @side.task(name="flaky", bind=True, max_retries=2)
    def flaky(self: Any, good_after: int) -> int:
        seen.append(self.request.retries)
        if self.request.retries < good_after:
            raise self.retry(exc=ConnectionError("busy"), countdown=3600)
        return int(self.request.retries)

    assert flaky.apply((2,)).get() == 2
    assert seen == [0, 1, 2]
    result = flaky.apply((9,))
    assert (result.status, str(result.result)) == ("FAILURE", "busy")
    assert seen == [0, 1, 2, 0, 1, 2]


def test_apply_retries_what_is_to_be_retried(side: Side) -> None:
    seen: list[int] = []

    @side.task(
        name="flaky", bind=True, autoretry_for=(OSError,), max_retries=1, default_retry_delay=999
    )
    def flaky(self: Any) -> None:
        seen.append(self.request.retries)
        raise OSError("gone")

    assert isinstance(flaky.apply().result, OSError)
    assert seen == [0, 1]


def test_a_request_of_apply_is_eager(side: Side) -> None:
    @side.task(name="look", bind=True)
    def look(self: Any, a: int) -> list[Any]:
        request = self.request
        return [request.is_eager, request.called_directly, request.id, request.args, request.task]

    eager, directly, id, args, name = look.apply((5,), task_id="chosen").get()
    assert (eager, directly, id, list(args), name) == (True, False, "chosen", [5], "look")


def test_a_canvas_can_be_applied(side: Side, add: Any) -> None:
    celery = side.module()

    @side.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    assert celery.chain(add.s(1, 2), add.s(10), add.si(5), add.s(1)).apply().get() == 6
    assert celery.group(add.s(1, 1), add.s(2, 2)).apply().get() == [2, 4]
    assert celery.chord([add.s(1), add.s(2)], total.s()).apply().get() == 3
    assert add.s(1).apply((5,)).get() == 6


def test_a_chain_that_is_applied_raises_what_its_first_task_raises(
    side: Side, add: Any, fail: Any
) -> None:
    with pytest.raises(ValueError, match="broken"):
        side.module().chain(fail.s("value"), add.si(1)).apply()


def test_always_eager_runs_what_is_started(side: Side, add: Any, fail: Any) -> None:
    celery = side.module()
    side.app.conf.task_always_eager = True
    assert add.delay(1, 2).get() == 3
    assert add.apply_async((1,), countdown=3600).result == 1
    assert celery.group(add.s(1), add.s(2))().get() == [1, 2]
    assert celery.chain(add.s(1), add.s(2))().get() == 3
    assert fail.delay("value").status == "FAILURE"
    side.app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="broken"):
        fail.delay("value")


def test_a_retry_says_how_many_there_may_be(side: Side) -> None:
    seen: list[int] = []

    @side.task(name="flaky", bind=True, max_retries=1)
    def flaky(self: Any, most: int) -> None:
        seen.append(self.request.retries)
        raise self.retry(exc=OSError("busy"), countdown=0, max_retries=most)

    assert isinstance(flaky.apply((7,)).result, OSError)
    assert seen == list(range(8))
    seen.clear()
    result = flaky.delay(5)
    with pytest.raises(OSError, match="busy"):
        side.get(result)
    assert seen == list(range(6))


def test_headers_of_a_call_are_in_the_request(side: Side) -> None:
    @side.task(name="look", bind=True)
    def look(self: Any) -> Any:
        return (self.request.headers or {}).get("tenant")

    assert side.get(look.apply_async(headers={"tenant": "blue"})) == "blue"
    assert side.get(look.s().set(headers={"tenant": "red"}).delay()) == "red"
    assert side.get(look.delay()) is None
