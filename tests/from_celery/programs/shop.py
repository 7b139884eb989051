"""What Celery's documentation says of tasks, as small programs: each runs against Celery itself and the look-alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar

import pytest

from tests.from_celery.sides import Side
from tests.support.until import wait_until

Check = Callable[[Any], None]
C = TypeVar("C", bound=Check)

BEHAVIOURS: dict[str, Check] = {}
"""By the page of Celery's documentation, and what it says there."""

DIFFERENCES: dict[str, tuple[Callable[[Shop], Any], Any, Any]] = {}
"""What differs on purpose, in the words of the page: what to do, and what comes of it in Celery and here."""


class Colour(Enum):
    """An enum, as arguments have them."""

    RED = 1


class Shop:
    """The tasks that the programs call, on one side; what they note is in `seen`."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.app = side.app
        self.celery = side.module()
        self.seen: list[Any] = []
        self.flaws: dict[str, int] = {}
        """How often a task is still to fail, by a name of the test's own."""
        for each in (
            *_plain_tasks(side, self.seen),
            *_failing_tasks(side, self.seen),
            *_bound_tasks(side),
            *_retried_tasks(side, self.seen, self.flaws),
        ):
            self.__dict__[each.name] = each

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def get(self, result: Any, **options: Any) -> Any:
        """The value of what was started."""
        return self.side.get(result, interval=0.01, **options)

    def end(self, result: Any) -> Any:
        """The same result, once its task has ended."""
        self.get(result, propagate=False)
        return result

    def error(self, result: Any) -> Any:
        """What a task fails with."""
        with pytest.raises(Exception) as raised:  # noqa: PT011  # which one is the test's to say
            self.get(result)
        return raised.value

    def until(self, condition: Callable[[], object]) -> None:
        """Have done what is due until a condition holds."""
        self.side.run()
        wait_until(lambda: condition() or None, lambda: self.seen)

    def notes(self, count: int) -> list[Any]:
        """What was noted, once there is so much of it."""
        self.until(lambda: len(self.seen) >= count)
        return self.seen

    def settle(self) -> list[Any]:
        """What was noted after all that was started before has been done: messages come in their order."""
        self.get(self.echo.delay(1))
        return self.seen

    def eagerly(self) -> Iterator[None]:
        """Run what is started in the caller."""
        self.app.conf.task_always_eager = True
        yield
        self.app.conf.task_always_eager = False


def _plain_tasks(side: Side, seen: list[Any]) -> list[Any]:
    """Tasks that return a value."""

    @side.task(name="add")
    def add(x: Any, y: Any = 0) -> Any:
        return x + y

    @side.task(name="sub")
    def sub(x: int, y: int) -> int:
        return x - y

    @side.task(name="echo")
    def echo(value: Any = None, **named: Any) -> Any:
        return named or value

    @side.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @side.task(name="note")
    def note(*args: Any) -> None:
        seen.append(args)

    return [add, sub, echo, total, note]


def _failing_tasks(side: Side, seen: list[Any]) -> list[Any]:
    """Tasks that fail, and those that hear of it."""

    @side.task(name="fail")
    def fail(text: str = "broken", *_: Any) -> None:
        raise ValueError(text)

    @side.task(name="expected", throws=(ValueError,))
    def expected() -> None:
        raise ValueError("as expected")

    @side.task(name="on_error")
    def on_error(request: Any, exc: Any, traceback: Any) -> None:
        seen.append((request.id, request.task, type(exc).__name__, str(exc), traceback))

    @side.task(name="on_error_id")
    def on_error_id(task_id: str) -> None:
        seen.append(task_id)

    @side.task(
        name="picky",
        autoretry_for=(OSError,),
        dont_autoretry_for=(ConnectionError,),
        max_retries=2,
        default_retry_delay=0,
    )
    def picky() -> None:
        seen.append("tried")
        raise ConnectionError("no")

    @side.task(name="forgetful", ignore_result=True)
    def forgetful() -> int:
        seen.append("done")
        return 5

    return [fail, expected, on_error, on_error_id, picky, forgetful]


def _bound_tasks(side: Side) -> list[Any]:
    """Tasks that look at their request."""

    @side.task(name="look", bind=True)
    def look(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        request = self.request
        return {
            "id": request.id,
            "task": getattr(request, "task", None),
            "args": list(request.args),
            "kwargs": request.kwargs,
            "retries": request.retries,
            "directly": request.called_directly,
            "eager": request.is_eager,
            "root": request.root_id,
            "host": request.hostname,
            "name": self.name,
        }

    @side.task(name="reports", bind=True)
    def reports(self: Any, state: str | None, meta: Any) -> list[Any]:
        self.update_state(state=state, meta=meta)
        result = self.app.AsyncResult(self.request.id)
        return [result.state, result.info]

    @side.task(name="own_state", bind=True)
    def own_state(self: Any) -> list[Any]:
        result = self.app.AsyncResult(self.request.id)
        return [result.state, result.info]

    return [look, reports, own_state]


def _retried_tasks(side: Side, seen: list[Any], flaws: dict[str, int]) -> list[Any]:
    """Tasks that are retried."""

    @side.task(name="flaky", bind=True, max_retries=3, default_retry_delay=0)
    def flaky(self: Any, name: str, **options: Any) -> int:
        seen.append(self.request.retries)
        if flaws.get(name, 0) > self.request.retries:
            raise self.retry(countdown=0, **options)
        return int(self.request.retries)

    @side.task(name="hopeless", bind=True, max_retries=1)
    def hopeless(self: Any, has_error: bool) -> None:
        seen.append(self.request.retries)
        raise self.retry(countdown=0, exc=KeyError("gone") if has_error else None)

    @side.task(
        name="auto", bind=True, autoretry_for=(OSError,), max_retries=2, default_retry_delay=0
    )
    def auto(self: Any, name: str) -> int:
        seen.append(self.request.retries)
        if flaws.get(name, 0) > self.request.retries:
            raise OSError("away")
        return int(self.request.retries)

    @side.task(name="patient", bind=True, max_retries=1)
    def patient(self: Any) -> None:
        seen.append(self.request.retries)
        raise self.retry(countdown=3600)

    return [flaky, hopeless, auto, patient]


def behaviours_of(page: str, into: dict[str, Any]) -> Callable[[str], Callable[[C], C]]:
    """Return what adds a program that shows what a page says."""

    def behaviour(says: str) -> Callable[[C], C]:
        def add(check: C) -> C:
            name = f"{page}: {says}"
            assert name not in into, name
            into[name] = check
            return check

        return add

    return behaviour


def behaviour(page: str, says: str) -> Callable[[C], C]:
    """Add a program that shows what a page says."""
    return behaviours_of(page, BEHAVIOURS)(says)


def values(page: str, expected: dict[str, tuple[Callable[[Shop], Any], Any]]) -> None:
    """Add programs that each start something, and what it returns."""
    for says, (start, value) in expected.items():

        def check(shop: Shop, start: Any = start, value: Any = value) -> None:
            assert shop.get(start(shop)) == value

        behaviour(page, says)(check)


def difference(says: str, *, celery: Any, here: Any) -> Callable[[C], C]:
    """Add a program that ends otherwise here, and with what on each side."""

    def add(act: C) -> C:
        DIFFERENCES[says] = (act, celery, here)
        return act

    return add
