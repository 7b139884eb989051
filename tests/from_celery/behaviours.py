"""What Celery's documentation says of tasks, as small programs: each runs against Celery itself and the look-alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import pytest

from tests.from_celery.sides import Side
from tests.support.until import wait_until

Check = Callable[["Shop"], None]
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

    return [look, reports]


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


def behaviour(page: str, says: str) -> Callable[[C], C]:
    """Add a program that shows what a page says."""

    def add(check: C) -> C:
        name = f"{page}: {says}"
        assert name not in BEHAVIOURS, name
        BEHAVIOURS[name] = check
        return check

    return add


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


NOON = datetime(2026, 11, 18, 12, 30, 15, 250_000, tzinfo=UTC)
TRAVELLERS = {
    "a datetime": NOON,
    "a datetime of another zone": NOON.astimezone(UTC).replace(tzinfo=None),
    "a date": date(2026, 11, 18),
    "a time": time(12, 30, 15),
    "a decimal": Decimal("12.50"),
    "a UUID": UUID("11111111-2222-3333-4444-555555555555"),
    "a text with signs": "żółw \u2028 🐢",
    "nothing": None,
    "a nested list": [[1, [2.5]], {"a": [True, None]}],
}


def _echo(value: Any, shop: Shop) -> Any:
    return shop.echo.delay(value)


# --- Calling tasks

values(
    "Calling",
    {
        "delay passes positional arguments": (lambda s: s.add.delay(2, 3), 5),
        "delay passes keyword arguments": (lambda s: s.sub.delay(x=2, y=3), -1),
        "apply_async takes both": (lambda s: s.sub.apply_async((9,), {"y": 3}), 6),
        "apply_async takes a list": (lambda s: s.sub.apply_async([9, 4]), 5),
        "apply_async takes nothing": (lambda s: s.echo.apply_async(None, None), None),
        "send_task starts a task by its name": (lambda s: s.app.send_task("add", (1, 1)), 2),
        "send_task takes keyword arguments": (
            lambda s: s.app.send_task("sub", kwargs={"x": 3, "y": 1}),
            2,
        ),
        "an eta in the past is now": (
            lambda s: s.add.apply_async((1, 2), eta=datetime.now(UTC) - timedelta(days=1)),
            3,
        ),
        "a countdown of 0 is now": (lambda s: s.add.apply_async((1, 2), countdown=0), 3),
        "a task that has not expired runs": (
            lambda s: s.add.apply_async((1, 2), expires=3600),
            3,
        ),
        "an expiry may be a time": (
            lambda s: s.add.apply_async((1, 2), expires=datetime.now(UTC) + timedelta(hours=1)),
            3,
        ),
        "a priority is accepted": (lambda s: s.add.apply_async((1, 2), priority=5), 3),
        "a list of links may be empty": (lambda s: s.add.apply_async((1, 2), link=[]), 3),
        **{
            f"{name} arrives as it was sent": (partial(_echo, value), value)
            for name, value in TRAVELLERS.items()
        },
        "a decimal arrives within a dict": (
            lambda s: s.echo.delay({"prices": [Decimal("1.10")]}),
            {"prices": [Decimal("1.10")]},
        ),
        "a date arrives as a keyword argument": (
            lambda s: s.echo.delay(day=date(2026, 1, 2)),
            {"day": date(2026, 1, 2)},
        ),
    },
)


@behaviour("Calling", "a task that is called runs here")
def _(shop: Shop) -> None:
    assert shop.add(2, 2) == 4
    assert shop.look()["directly"] is True


@behaviour("Calling", "each call has an id of its own, which is a text")
def _(shop: Shop) -> None:
    one, two = shop.add.delay(1, 1), shop.add.delay(1, 1)
    assert isinstance(one.id, str)
    assert one.id != two.id


@behaviour("Calling", "a chosen task_id is the result's and the request's")
def _(shop: Shop) -> None:
    result = shop.look.apply_async(task_id="chosen-by-the-caller")
    assert result.id == "chosen-by-the-caller"
    assert shop.get(result)["id"] == "chosen-by-the-caller"


@behaviour("Calling", "a countdown runs a task later")
def _(shop: Shop) -> None:
    result = shop.add.apply_async((1, 1), countdown=3600)
    assert shop.settle() == []
    assert (result.ready(), result.state) == (False, "PENDING")


@behaviour("Calling", "an eta runs a task later")
def _(shop: Shop) -> None:
    result = shop.add.apply_async((1, 1), eta=datetime.now(UTC) + timedelta(hours=1))
    shop.settle()
    assert result.ready() is False


@behaviour("Calling", "a task that has expired is revoked")
def _(shop: Shop) -> None:
    result = shop.note.apply_async((1,), expires=datetime.now(UTC) - timedelta(minutes=1))
    error = shop.error(result)
    assert type(error).__name__ == "TaskRevokedError"
    assert (result.state, shop.seen) == ("REVOKED", [])


@behaviour("Calling", "arguments that the task does not take are a TypeError of the caller")
def _(shop: Shop) -> None:
    with pytest.raises(TypeError):
        shop.sub.delay(1)
    with pytest.raises(TypeError):
        shop.sub.apply_async((1, 2, 3))


@behaviour("Calling", "what cannot be stored is an error of the caller")
def _(shop: Shop) -> None:
    with pytest.raises(Exception, match=r"object"):
        shop.echo.delay(object())


@behaviour("Calling", "a link is given the result")
def _(shop: Shop) -> None:
    assert shop.get(shop.add.apply_async((2, 2), link=shop.note.s())) == 4
    assert shop.notes(1) == [(4,)]


@behaviour("Calling", "a link is given the result before its own arguments")
def _(shop: Shop) -> None:
    shop.add.apply_async((2, 2), link=shop.note.s("own"))
    assert shop.notes(1) == [(4, "own")]


@behaviour("Calling", "an immutable link is given nothing")
def _(shop: Shop) -> None:
    shop.add.apply_async((2, 2), link=shop.note.si("own"))
    assert shop.notes(1) == [("own",)]


@behaviour("Calling", "several links are all started")
def _(shop: Shop) -> None:
    shop.add.apply_async((2, 2), link=[shop.note.s("a"), shop.note.s("b")])
    assert sorted(shop.notes(2)) == [(4, "a"), (4, "b")]


@behaviour("Calling", "a link may be a chain")
def _(shop: Shop) -> None:
    shop.add.apply_async((2, 2), link=shop.celery.chain(shop.add.s(10), shop.note.s()))
    assert shop.notes(1) == [(14,)]


@behaviour("Calling", "a link may have links itself")
def _(shop: Shop) -> None:
    inner = shop.add.s(10)
    inner.link(shop.note.s())
    shop.add.apply_async((2, 2), link=inner)
    assert shop.notes(1) == [(14,)]


@behaviour("Calling", "a link is not started when the task fails")
def _(shop: Shop) -> None:
    shop.end(shop.fail.apply_async(link=shop.note.s()))
    assert shop.settle() == []


@behaviour("Calling", "a link is started when a retry succeeds")
def _(shop: Shop) -> None:
    shop.flaws["linked"] = 1
    shop.get(shop.flaky.apply_async(("linked",), link=shop.note.s()))
    assert shop.notes(3) == [0, 1, (1,)]


@behaviour("Calling", "an error link is given request, exception and traceback")
def _(shop: Shop) -> None:
    result = shop.end(shop.fail.apply_async(("lost",), link_error=shop.on_error.s()))
    ((id, task, kind, text, trace),) = shop.notes(1)
    assert (id, task, kind, text) == (result.id, "fail", "ValueError", "lost")
    assert trace.startswith("Traceback (most recent call last):")
    assert "ValueError: lost" in trace


@behaviour("Calling", "an error link that takes one argument is given the id")
def _(shop: Shop) -> None:
    result = shop.end(shop.fail.apply_async(link_error=shop.on_error_id.s()))
    assert shop.notes(1) == [result.id]


@behaviour("Calling", "an immutable error link is given nothing")
def _(shop: Shop) -> None:
    shop.end(shop.fail.apply_async(link_error=shop.note.si("sorry")))
    assert shop.notes(1) == [("sorry",)]


@behaviour("Calling", "several error links are all started")
def _(shop: Shop) -> None:
    links = [shop.on_error_id.s(), shop.note.si("sorry")]
    result = shop.end(shop.fail.apply_async(link_error=links))
    assert sorted(shop.notes(2), key=str) == sorted([result.id, ("sorry",)], key=str)


@behaviour("Calling", "an error link is not started when the task succeeds")
def _(shop: Shop) -> None:
    shop.get(shop.add.apply_async((1, 1), link_error=shop.on_error.s()))
    assert shop.settle() == []


@behaviour("Calling", "an error link is started once, after the last retry")
def _(shop: Shop) -> None:
    shop.end(shop.hopeless.apply_async((True,), link_error=shop.note.si("sorry")))
    assert shop.notes(3) == [0, 1, ("sorry",)]


@behaviour("Calling", "a result is not kept if the task ignores it")
def _(shop: Shop) -> None:
    result = shop.forgetful.delay()
    assert shop.notes(1) == ["done"]
    assert result.result is None


@behaviour("Calling", "a result that is forgotten is unknown")
def _(shop: Shop) -> None:
    result = shop.end(shop.add.delay(1, 1))
    result.forget()
    assert shop.app.AsyncResult(result.id).state == "PENDING"


@behaviour("Calling", "a result can be read by its id")
def _(shop: Shop) -> None:
    result = shop.end(shop.add.delay(1, 1))
    again = shop.app.AsyncResult(result.id)
    assert (again.state, again.result, again.info) == ("SUCCESS", 2, 2)
    assert shop.add.AsyncResult(result.id).get(timeout=10) == 2


# --- Tasks: request, retries, states

values(
    "Tasks",
    {
        "a reported state and its meta are seen while the task runs": (
            lambda s: s.reports.delay("PROGRESS", {"current": 1, "total": 4}),
            ["PROGRESS", {"current": 1, "total": 4}],
        ),
        "a reported state has any name": (
            lambda s: s.reports.delay("UPLOADING", {"file": "a.pdf"}),
            ["UPLOADING", {"file": "a.pdf"}],
        ),
        "a reported state needs no meta": (
            lambda s: s.reports.delay("WORKING", None),
            ["WORKING", None],
        ),
    },
)


@behaviour("Tasks", "the end of a task replaces what it reported")
def _(shop: Shop) -> None:
    result = shop.end(shop.reports.delay("PROGRESS", {"current": 1}))
    assert (result.state, result.info) == ("SUCCESS", ["PROGRESS", {"current": 1}])


@behaviour("Tasks", "the request has id, arguments, name and retries")
def _(shop: Shop) -> None:
    result = shop.look.delay(1, 2, a=3)
    found = shop.get(result)
    assert found["id"] == result.id
    assert (found["task"], found["name"]) == ("look", "look")
    assert (found["args"], found["kwargs"], found["retries"]) == ([1, 2], {"a": 3}, 0)


@behaviour("Tasks", "the request of a worker is neither direct nor eager")
def _(shop: Shop) -> None:
    found = shop.get(shop.look.delay())
    assert (found["directly"], found["eager"]) == (False, False)
    assert isinstance(found["host"], str)


@behaviour("Tasks", "the root of a single task is the task")
def _(shop: Shop) -> None:
    result = shop.look.delay()
    assert shop.get(result)["root"] == result.id


@behaviour("Tasks", "retry runs the task again and counts")
def _(shop: Shop) -> None:
    shop.flaws["counted"] = 2
    assert shop.get(shop.flaky.delay("counted")) == 2
    assert shop.seen == [0, 1, 2]


@behaviour("Tasks", "retry may allow more than the task does")
def _(shop: Shop) -> None:
    shop.flaws["more"] = 5
    assert shop.get(shop.flaky.delay("more", max_retries=9)) == 5


@behaviour("Tasks", "retry fails with its error when none is left")
def _(shop: Shop) -> None:
    assert isinstance(shop.error(shop.hopeless.delay(True)), KeyError)
    assert shop.seen == [0, 1]


@behaviour("Tasks", "retry without an error fails with MaxRetriesExceededError")
def _(shop: Shop) -> None:
    assert type(shop.error(shop.hopeless.delay(False))).__name__ == "MaxRetriesExceededError"


@behaviour("Tasks", "autoretry_for retries these errors")
def _(shop: Shop) -> None:
    shop.flaws["auto"] = 1
    assert shop.get(shop.auto.delay("auto")) == 1


@behaviour("Tasks", "autoretry_for ends with the error")
def _(shop: Shop) -> None:
    shop.flaws["never"] = 9
    assert isinstance(shop.error(shop.auto.delay("never")), OSError)
    assert shop.seen == [0, 1, 2]


@behaviour("Tasks", "dont_autoretry_for excepts a class of errors")
def _(shop: Shop) -> None:
    assert isinstance(shop.error(shop.picky.delay()), ConnectionError)
    assert shop.seen == ["tried"]


@behaviour("Tasks", "an error that is expected is still a failure")
def _(shop: Shop) -> None:
    result = shop.end(shop.expected.delay())
    assert (result.state, str(result.result)) == ("FAILURE", "as expected")


@behaviour("Tasks", "retry of a task that is called raises the error")
def _(shop: Shop) -> None:
    with pytest.raises(KeyError):
        shop.hopeless(True)


@behaviour("Tasks", "run is the function itself")
def _(shop: Shop) -> None:
    assert shop.add.run(2, 2) == 4


@behaviour("Tasks", "a task has its options as attributes")
def _(shop: Shop) -> None:
    assert (shop.flaky.max_retries, shop.flaky.default_retry_delay) == (3, 0)
    assert (shop.add.max_retries, shop.add.default_retry_delay) == (3, 180)


@behaviour("Tasks", "a task is found in the application by its name")
def _(shop: Shop) -> None:
    assert shop.app.tasks["add"].name == shop.add.name == "add"


# --- Canvas: signatures


@behaviour("Canvas", "a signature has the task's name and its arguments")
def _(shop: Shop) -> None:
    made = shop.add.s(2, y=3)
    assert (made.task, made.args, made.kwargs) == ("add", (2,), {"y": 3})


@behaviour("Canvas", "a signature that is called runs here")
def _(shop: Shop) -> None:
    assert shop.sub.s(5, 3)() == 2
    assert shop.sub.s(3)(10) == 7


@behaviour("Canvas", "clone adds arguments before its own")
def _(shop: Shop) -> None:
    made = shop.sub.s(3)
    assert made.clone(args=(10,))() == 7
    assert made.args == (3,)


@behaviour("Canvas", "an immutable signature takes no arguments")
def _(shop: Shop) -> None:
    assert shop.add.si(1, 1)(99) == 2
    assert shop.add.s(1, 1).set(immutable=True)(99) == 2


@behaviour("Canvas", "set changes options and returns the signature")
def _(shop: Shop) -> None:
    made = shop.add.s(1, 1)
    assert made.set(countdown=5) is made
    assert made.options["countdown"] == 5


@behaviour("Canvas", "link returns the callback and links it once")
def _(shop: Shop) -> None:
    made, callback = shop.add.s(2, 2), shop.note.s()
    assert made.link(callback) is callback
    made.link(callback)
    assert made.options["link"] == [callback]
    made.delay()
    assert shop.notes(1) == [(4,)]
    assert shop.settle() == [(4,)]


@behaviour("Canvas", "on_error returns the signature")
def _(shop: Shop) -> None:
    made = shop.fail.s()
    assert made.on_error(shop.on_error_id.s()) is made
    result = shop.end(made.delay())
    assert shop.notes(1) == [result.id]


@behaviour("Canvas", "link_error returns the callback")
def _(shop: Shop) -> None:
    made, callback = shop.fail.s(), shop.note.si("sorry")
    assert made.link_error(callback) is callback
    shop.end(made.delay())
    assert shop.notes(1) == [("sorry",)]


@behaviour("Canvas", "a link of the call replaces that of the signature")
def _(shop: Shop) -> None:
    made = shop.add.s(2, 2)
    made.link(shop.note.s("a"))
    shop.get(made.apply_async(link=shop.note.s("b")))
    assert shop.notes(1) == [(4, "b")]
    assert shop.settle() == [(4, "b")]


values(
    "Canvas",
    {
        "a signature is started with delay": (lambda s: s.sub.s(5, 3).delay(), 2),
        "a signature is started with apply_async": (lambda s: s.sub.s(5, 3).apply_async(), 2),
        "arguments of a partial go first": (lambda s: s.sub.s(3).delay(10), 7),
        "keyword arguments of the call win": (
            lambda s: s.echo.s(a=1, b=1).delay(b=2),
            {"a": 1, "b": 2},
        ),
        "arguments of a partial can be given to apply_async": (
            lambda s: s.sub.s(3).apply_async((10,)),
            7,
        ),
        "a signature can be made by name": (
            lambda s: s.celery.signature("add", (1, 1), app=s.app).delay(),
            2,
        ),
        "a signature can be made of the task": (lambda s: s.add.signature((1, 1)).delay(), 2),
        "a signature of the application": (lambda s: s.app.signature("add", (1, 1)).delay(), 2),
        "a chain hands results on": (
            lambda s: s.celery.chain(s.add.s(2, 2), s.add.s(4), s.add.s(8))(),
            16,
        ),
        "a chain can be written with a bar": (
            lambda s: (s.add.s(2, 2) | s.add.s(4) | s.sub.s(1)).delay(),
            7,
        ),
        "a chain can be given as a list": (
            lambda s: s.celery.chain([s.add.s(2, 2), s.add.s(4)])(),
            8,
        ),
        "a chain may have one task": (lambda s: s.celery.chain(s.add.s(2, 2))(), 4),
        "a chain of immutable tasks hands nothing on": (
            lambda s: s.celery.chain(s.add.si(2, 2), s.add.si(1, 1))(),
            2,
        ),
        "a chain in a chain": (
            lambda s: s.celery.chain(s.add.s(1, 1), s.celery.chain(s.add.s(2), s.add.s(3)))(),
            7,
        ),
        "arguments of a chain are those of its first task": (
            lambda s: s.celery.chain(s.sub.s(1), s.add.s(5)).apply_async((10,)),
            14,
        ),
        "a chain hands a decimal on": (
            lambda s: s.celery.chain(
                s.add.s(Decimal("1.5"), Decimal(1)), s.add.s(Decimal("0.5"))
            )(),
            Decimal("3.0"),
        ),
        "a group returns results in its order": (
            lambda s: s.celery.group(s.add.s(1, 1), s.add.s(2, 2), s.add.s(3, 3))(),
            [2, 4, 6],
        ),
        "a group can be made of a generator": (
            lambda s: s.celery.group(s.add.s(i, i) for i in range(3)).delay(),
            [0, 2, 4],
        ),
        "arguments of a group are those of each task": (
            lambda s: s.celery.group(s.add.s(1), s.add.s(2)).delay(10),
            [11, 12],
        ),
        "a group may have chains": (
            lambda s: s.celery.group(s.add.s(1, 1) | s.add.s(1), s.add.s(5, 5))(),
            [3, 10],
        ),
        "a chord gives its body the results": (
            lambda s: s.celery.chord([s.add.s(1, 1), s.add.s(2, 2)])(s.total.s()),
            6,
        ),
        "a chord can be started with delay": (
            lambda s: s.celery.chord([s.add.s(1, 1), s.add.s(2, 2)], s.total.s()).delay(),
            6,
        ),
        "the body of a chord may be immutable": (
            lambda s: s.celery.chord([s.add.s(1, 1), s.add.s(2, 2)])(s.add.si(5, 5)),
            10,
        ),
        "a group before a task is a chord": (
            lambda s: (s.celery.group(s.add.s(1, 1), s.add.s(2, 2)) | s.total.s()).delay(),
            6,
        ),
        "a group within a chain": (
            lambda s: s.celery.chain(
                s.add.s(1, 1), s.celery.group(s.add.s(1), s.add.s(2)), s.total.s()
            )(),
            7,
        ),
        "a chord is followed by a task": (
            lambda s: s.celery.chain(
                s.celery.group(s.add.s(1, 1), s.add.s(2, 2)), s.total.s(), s.add.s(10)
            )(),
            16,
        ),
        "map calls a task for each item": (lambda s: s.total.map([[1, 2], [3]]).delay(), [3, 3]),
        "starmap calls it with the arguments in each": (
            lambda s: s.sub.starmap([(5, 1), (4, 1)]).apply_async(),
            [4, 3],
        ),
        "starmap takes a zip": (
            lambda s: s.add.starmap(zip(range(3), range(3), strict=True)).delay(),
            [0, 2, 4],
        ),
        "chunks divides the items": (
            lambda s: s.add.chunks(zip(range(5), range(5), strict=True), 2)(),
            [[0, 2], [4, 6], [8]],
        ),
        "chunks can be a group": (
            lambda s: s.add.chunks([(1, 1), (2, 2)], 1).group()(),
            [[2], [4]],
        ),
        "chunks can be started with apply_async": (
            lambda s: s.add.chunks([(1, 1), (2, 2)], 2).apply_async(),
            [[2, 4]],
        ),
    },
)


@behaviour("Canvas", "the parents of a result are those before it")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.add.s(2, 2), shop.add.s(4), shop.add.s(8))()
    assert shop.get(result) == 16
    assert shop.get(result.parent) == 8
    assert shop.get(result.parent.parent) == 4
    assert result.parent.parent.parent is None
    assert (result.parent.state, result.parent.successful()) == ("SUCCESS", True)


@behaviour("Canvas", "a parent before an immutable task has its result")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.add.s(2, 2), shop.add.si(1, 1))()
    assert (shop.get(result), shop.get(result.parent)) == (2, 4)


@behaviour("Canvas", "a single task has no parent")
def _(shop: Shop) -> None:
    assert shop.add.delay(1, 1).parent is None


@behaviour("Canvas", "the parent of a chord's body is the group")
def _(shop: Shop) -> None:
    result = shop.celery.chord([shop.add.s(1, 1), shop.add.s(2, 2)])(shop.total.s())
    assert shop.get(result) == 6
    assert [shop.get(each) for each in result.parent.results] == [2, 4]


@behaviour("Canvas", "a chain stops at a failure")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.fail.s(), shop.note.si("after"))()
    assert isinstance(shop.error(result), ValueError)
    assert (result.state, shop.settle()) == ("FAILURE", [])


@behaviour("Canvas", "the failed task of a chain is a parent")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.fail.s("first"), shop.add.s(1))()
    shop.error(result)
    assert (result.parent.state, str(result.parent.result)) == ("FAILURE", "first")


@behaviour("Canvas", "a link of a chain is given its last result")
def _(shop: Shop) -> None:
    made = shop.celery.chain(shop.add.s(2, 2), shop.add.s(4))
    made.link(shop.note.s())
    made.delay()
    assert shop.notes(1) == [(8,)]


@behaviour("Canvas", "a link can be given when a chain is started")
def _(shop: Shop) -> None:
    shop.celery.chain(shop.add.s(2, 2), shop.add.s(4)).apply_async(link=shop.note.s())
    assert shop.notes(1) == [(8,)]


@behaviour("Canvas", "on_error of a chain is called whichever task fails")
def _(shop: Shop) -> None:
    for parts in ([shop.fail.s(), shop.add.s(1)], [shop.add.s(1, 1), shop.fail.si()]):
        made = shop.celery.chain(*parts).on_error(shop.note.si("sorry"))
        shop.error(made.delay())
    assert shop.notes(2) == [("sorry",), ("sorry",)]


@behaviour("Canvas", "the result of a group has its length, items and order")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    shop.get(result)
    assert len(result) == 2
    assert [each.get(timeout=10) for each in result] == [2, 4]
    assert result[1].get(timeout=10) == 4
    assert result.children == result.results


@behaviour("Canvas", "the result of a group counts what has completed")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.fail.s())()
    shop.get(result, propagate=False)
    assert result.completed_count() == 1
    assert (result.ready(), result.waiting()) == (True, False)
    assert (result.failed(), result.successful()) == (True, False)


@behaviour("Canvas", "a group that is done is successful")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    assert shop.get(result) == [2, 4]
    assert (result.successful(), result.failed(), result.completed_count()) == (True, False, 2)


@behaviour("Canvas", "get of a group raises what a task raised")
def _(shop: Shop) -> None:
    assert isinstance(shop.error(shop.celery.group(shop.add.s(1, 1), shop.fail.s())()), ValueError)


@behaviour("Canvas", "join waits as get does")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    shop.get(result)
    assert result.join(timeout=10) == [2, 4]


@behaviour("Canvas", "a group that was saved is restored by its id")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    result.save()
    shop.get(result)
    kind = shop.side.module("result").GroupResult
    again = kind.restore(result.id, app=shop.app)
    assert again.id == result.id
    assert again.get(timeout=10) == [2, 4]
    again.delete()
    assert kind.restore(result.id, app=shop.app) is None


@behaviour("Canvas", "a group that was never saved is nothing")
def _(shop: Shop) -> None:
    kind = shop.side.module("result").GroupResult
    assert kind.restore("11111111-2222-3333-4444-555555555555", app=shop.app) is None


@behaviour("Canvas", "skew gives each task of a group a countdown")
def _(shop: Shop) -> None:
    made = shop.celery.group(shop.add.s(i, i) for i in range(4))
    made.skew(start=1, stop=10)
    assert [each.options["countdown"] for each in made.tasks] == [1, 2, 3, 4]


@behaviour("Canvas", "the body of a chord is not run when a task of the header fails")
def _(shop: Shop) -> None:
    result = shop.celery.chord([shop.add.s(1, 1), shop.fail.s()])(shop.note.s())
    shop.end(result)
    assert type(result.result).__name__ == "ChordError"
    assert (result.state, shop.settle()) == ("FAILURE", [])


@behaviour("Canvas", "an error link of the body is started when a task of the header fails")
def _(shop: Shop) -> None:
    body = shop.note.s().on_error(shop.on_error_id.s())
    result = shop.celery.chord([shop.add.s(1, 1), shop.fail.s()])(body)
    shop.error(result)
    assert shop.notes(1) == [result.id]


@behaviour("Canvas", "on_error of a chord is that of its body")
def _(shop: Shop) -> None:
    made = shop.celery.chord([shop.add.s(1, 1)], shop.fail.si()).on_error(shop.note.si("sorry"))
    shop.error(made.delay())
    assert shop.notes(1) == [("sorry",)]


@behaviour("Canvas", "a link of a group is started by its first task, without a result")
def _(shop: Shop) -> None:
    made = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))
    made.link(shop.note.s("linked"))
    shop.get(made())
    assert shop.notes(1) == [("linked",)]
    assert shop.settle() == [("linked",)]


@behaviour("Canvas", "an error link of a group is started by each task that fails")
def _(shop: Shop) -> None:
    made = shop.celery.group(shop.fail.s("a"), shop.add.s(2, 2), shop.fail.s("b"))
    made.link_error(shop.on_error.s())
    shop.get(made(), propagate=False)
    assert sorted(text for _, _, _, text, _ in shop.notes(2)) == ["a", "b"]


# --- Testing: apply, and eager mode


@behaviour("Testing", "apply has the result at once")
def _(shop: Shop) -> None:
    result = shop.add.apply((2, 2))
    assert (result.get(), result.state, result.ready()) == (4, "SUCCESS", True)


@behaviour("Testing", "apply takes signature's arguments")
def _(shop: Shop) -> None:
    assert shop.sub.s(3).apply((10,)).get() == 7
    assert shop.sub.apply(kwargs={"x": 3, "y": 1}).result == 2


@behaviour("Testing", "apply passes objects as they are")
def _(shop: Shop) -> None:
    assert shop.echo.apply((Decimal("1.5"),)).get() == Decimal("1.5")


def eager(says: str) -> Callable[[C], C]:
    """Add a program of eager mode."""

    def add(check: C) -> C:
        def check_eagerly(shop: Shop) -> None:
            for _ in shop.eagerly():
                check(shop)

        behaviour("Testing", says)(check_eagerly)
        return check

    return add


@eager("an eager result is there when delay returns")
def _(shop: Shop) -> None:
    result = shop.add.delay(2, 2)
    assert (result.state, result.get(), result.successful()) == ("SUCCESS", 4, True)
    assert shop.look.delay().get()["eager"] is True


@eager("an eager link is called")
def _(shop: Shop) -> None:
    shop.add.apply_async((2, 2), link=shop.note.s())
    assert shop.seen == [(4,)]


@eager("an eager error link is called")
def _(shop: Shop) -> None:
    result = shop.fail.apply_async(("lost",), link_error=shop.on_error.s())
    assert [each[:4] for each in shop.seen] == [(result.id, "fail", "ValueError", "lost")]


@eager("an inverted signature is its result")
def _(shop: Shop) -> None:
    assert ~shop.add.s(2, 2) == 4


@eager("an eager chain has parents")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.add.s(2, 2), shop.add.s(4))()
    assert (result.get(), result.parent.get()) == (8, 4)


@eager("an eager chord gives its body the results")
def _(shop: Shop) -> None:
    assert shop.celery.chord([shop.add.s(1, 1), shop.add.s(2, 2)])(shop.total.s()).get() == 6


@eager("eager map, starmap and chunks")
def _(shop: Shop) -> None:
    assert shop.total.map([[1, 2], [3]]).delay().get() == [3, 3]
    assert shop.add.starmap([(1, 1), (2, 2)]).delay().get() == [2, 4]
    assert shop.add.chunks([(1, 1), (2, 2)], 1)().get() == [[2], [4]]


@eager("an eager failure is in the result")
def _(shop: Shop) -> None:
    result = shop.fail.delay("lost")
    assert (result.state, str(result.result), result.failed()) == ("FAILURE", "lost", True)
    with pytest.raises(ValueError, match="lost"):
        result.get()


@eager("an eager task retries at once")
def _(shop: Shop) -> None:
    shop.flaws["eager"] = 2
    assert shop.flaky.delay("eager").get() == 2


# --- Workers


@behaviour("Workers", "a task that is revoked before it runs does not run")
def _(shop: Shop) -> None:
    shop.settle()
    result = shop.note.apply_async((1,), countdown=0.5)
    shop.app.control.revoke(result.id)
    shop.until(lambda: result.state == "REVOKED")
    assert type(shop.error(result)).__name__ == "TaskRevokedError"
    assert shop.seen == []


@behaviour("Workers", "several tasks are revoked at once")
def _(shop: Shop) -> None:
    shop.settle()
    results = [shop.note.apply_async((1,), countdown=0.5) for _ in range(2)]
    shop.app.control.revoke([each.id for each in results])
    shop.until(lambda: [each.state for each in results] == ["REVOKED"] * 2)


@behaviour("Workers", "a result revokes its task")
def _(shop: Shop) -> None:
    shop.settle()
    result = shop.note.apply_async((1,), countdown=0.5)
    result.revoke()
    shop.until(lambda: result.state == "REVOKED")


# --- What differs on purpose


@difference("A tuple arrives as a tuple, not as a list.", celery=[1, 2], here=(1, 2))
def _(shop: Shop) -> Any:
    return shop.get(shop.echo.delay((1, 2)))


@difference("A tuple that a task returns is read as a tuple.", celery=[3], here=(3,))
def _(shop: Shop) -> Any:
    return shop.get(shop.celery.chain(shop.add.s([], []), shop.echo.si((3,)))())


@difference(
    "A `timedelta` arrives as such instead of being refused.",
    celery="refused",
    here=timedelta(days=1),
)
def _(shop: Shop) -> Any:
    return _or_refused(lambda: shop.get(shop.echo.delay(timedelta(days=1))))


@difference(
    "An enum arrives as its member instead of being refused.", celery="refused", here=Colour.RED
)
def _(shop: Shop) -> Any:
    return _or_refused(lambda: shop.get(shop.echo.delay(Colour.RED)))


@difference(
    "A task that waits for its retry is `PENDING`, not `RETRY`.", celery="RETRY", here="PENDING"
)
def _(shop: Shop) -> Any:
    result = shop.patient.delay()
    shop.notes(1)
    shop.settle()
    return result.state


@difference(
    "A chain has one id: that of its result is the one of its first task.", celery=False, here=True
)
def _(shop: Shop) -> Any:
    result = shop.celery.chain(shop.look.s(), shop.echo.s())()
    return bool(shop.get(result)["id"] == result.id)


@difference(
    "A second call with the `task_id` of one that has not ended joins it instead of running too.",
    celery=2,
    here=1,
)
def _(shop: Shop) -> Any:
    for _ in range(2):
        shop.note.apply_async((1,), task_id="twice", countdown=0)
    shop.notes(1)
    return len(shop.settle())


@difference(
    "An error link is always a task of its own, with an id, retries and signals.",
    celery=False,
    here=True,
)
def _(shop: Shop) -> Any:
    begun: list[str] = []

    def receive(sender: Any, **_: Any) -> None:
        begun.append(sender.name)

    signal = shop.side.module("signals").task_prerun
    signal.connect(receive, weak=False)
    shop.end(shop.fail.apply_async(link_error=shop.on_error.s()))
    shop.notes(1)
    signal.disconnect(receive)
    return "on_error" in begun


def _or_refused(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception:
        return "refused"
