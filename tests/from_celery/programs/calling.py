"""What Celery's pages on calling tasks and on tasks themselves say."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.from_celery.programs.shop import Shop, behaviour, values

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
        "a task that has not expired runs": (lambda s: s.add.apply_async((1, 2), expires=3600), 3),
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


values(
    "Calling",
    {
        "apply_async takes args and kwargs by their names": (
            lambda s: s.sub.apply_async(args=[3], kwargs={"y": 1}),
            2,
        ),
        "a countdown and an expiry go together": (
            lambda s: s.add.apply_async((1, 2), countdown=0, expires=120),
            3,
        ),
        "a countdown in the past is now": (lambda s: s.add.apply_async((1, 2), countdown=-1), 3),
        "a serializer may be json": (lambda s: s.add.apply_async((1, 2), serializer="json"), 3),
        "ignore_result=False keeps a result that the task ignores": (
            lambda s: s.forgetful.apply_async(ignore_result=False),
            5,
        ),
    },
)


@behaviour("Calling", "ignore_result=True drops a result")
def _(shop: Shop) -> None:
    result = shop.add.apply_async((1, 2), ignore_result=True)
    shop.settle()
    assert result.result is None


@behaviour("Calling", "what delay raises without a connection is the task's OperationalError")
def _(shop: Shop) -> None:
    assert issubclass(shop.add.OperationalError, Exception)


@behaviour("Calling", "the text of a result is its id")
def _(shop: Shop) -> None:
    result = shop.add.delay(1, 1)
    assert (str(result), f"{result}", repr(result)) == (
        result.id,
        result.id,
        f"<AsyncResult: {result.id}>",
    )


@behaviour("Calling", "an extended result knows its task, arguments and end")
def _(shop: Shop) -> None:
    result = shop.end(shop.sub.delay(5, y=2))
    assert (result.name, list(result.args), result.kwargs) == ("sub", [5], {"y": 2})
    assert result.date_done <= datetime.now(UTC).replace(tzinfo=result.date_done.tzinfo)
    assert isinstance(result.worker, str)
    assert shop.app.AsyncResult("11111111-2222-3333-4444-666666666666").date_done is None


@behaviour("Calling", "a task has what its decorator says, which its base class may read")
def _(shop: Shop) -> None:
    assert (shop.expected.throws, shop.forgetful.ignore_result) == ((ValueError,), True)
    names = ("throws", "ignore_result", "time_limit", "rate_limit", "priority")
    assert [getattr(shop.add, each) for each in names] == [(), False, None, None, None]
