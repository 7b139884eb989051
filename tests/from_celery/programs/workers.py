"""What Celery's page on workers says, with a worker that runs several tasks at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.from_celery.programs.shop import Check, Shop, behaviours_of
from tests.from_celery.programs.shop import behaviour as of_shop
from tests.from_celery.sides import Side
from tests.support.until import PATIENCE_S, wait_until

WORKERS: dict[str, Check] = {}
behaviour = behaviours_of("Workers", WORKERS)


WHILE_S = 3
"""How long a task waits that is revoked meanwhile, also on a busy machine; Celery says so only then."""


class Crew:
    """Tasks that run until they are let go, and a worker that runs them."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.app = side.app
        self.begun: list[Any] = []
        self.gate = threading.Event()
        self.meeting = threading.Barrier(2)

        @side.task(name="hold", bind=True)
        def hold(self: Any, name: str, *, speed: int = 0) -> str:
            crew.begun.append(name)
            assert crew.gate.wait(PATIENCE_S)
            return f"{name} done"

        @side.task(name="meet")
        def meet() -> bool:
            crew.meeting.wait(PATIENCE_S)
            return True

        @side.task(name="note")
        def note(name: str) -> str:
            crew.begun.append(name)
            return name

        @side.task(name="again", bind=True)
        def again(self: Any) -> None:
            crew.begun.append("again")
            raise self.retry(countdown=WHILE_S)

        crew = self
        self.hold, self.meet, self.note, self.again = hold, meet, note, again
        self.control = side.app.control

    def begin(self) -> None:
        """Forget what was seen before."""
        self.begun.clear()
        self.gate.clear()

    def settle(self) -> None:
        """Wait until what was sent before has arrived."""
        self.get(self.note.delay("settled"))

    def get(self, result: Any, **options: Any) -> Any:
        """The value of what was started."""
        return result.get(timeout=PATIENCE_S, interval=0.01, **options)

    def outcome(self, id: str) -> Any:
        """What a task returned, asked anew each time: in between, Celery says REVOKED of a task that runs."""
        wait_until(lambda: self.app.AsyncResult(id).state == "SUCCESS")
        return self.app.AsyncResult(id).result

    @contextmanager
    def holding(self, name: str, **named: Any) -> Iterator[Any]:
        """A task that runs until the block ends."""
        result = self.hold.delay(name, **named)
        wait_until(lambda: name in self.begun)
        try:
            yield result
        finally:
            self.gate.set()

    def name(self) -> str:
        """The worker's."""
        (name,) = self.control.inspect(timeout=0.3).ping()
        return str(name)


@behaviour("a worker runs several tasks at a time")
def _(crew: Crew) -> None:
    results = [crew.meet.delay(), crew.meet.delay()]
    assert [crew.get(each) for each in results] == [True, True]


@behaviour("ping is answered by each worker")
def _(crew: Crew) -> None:
    (answer,) = crew.control.ping(timeout=0.3)
    assert answer == {crew.name(): {"ok": "pong"}}


@behaviour("inspect().ping() has the answers by worker")
def _(crew: Crew) -> None:
    assert crew.control.inspect(timeout=0.3).ping() == {crew.name(): {"ok": "pong"}}


@behaviour("a ping to some workers is answered by these alone")
def _(crew: Crew) -> None:
    name = crew.name()
    assert crew.control.ping([name], timeout=0.3) == [{name: {"ok": "pong"}}]
    assert crew.control.ping(["another@host"], timeout=0.1) == []


@behaviour("without an answer inspect returns nothing")
def _(crew: Crew) -> None:
    inspected = crew.control.inspect(["another@host"], timeout=0.1)
    assert inspected.ping() is None
    assert inspected.active() is None


@behaviour("active has the task that runs, with its arguments")
def _(crew: Crew) -> None:
    with crew.holding("one", speed=7) as result:
        (task,) = crew.control.inspect(timeout=0.3).active()[crew.name()]
        assert (task["id"], task["name"], task["hostname"]) == (result.id, "hold", crew.name())
        assert (list(task["args"]), task["kwargs"]) == (["one"], {"speed": 7})
        assert isinstance(task["time_start"], float)


@behaviour("active is empty when nothing runs")
def _(crew: Crew) -> None:
    crew.get(crew.note.delay("short"))
    wait_until(lambda: crew.control.inspect(timeout=0.1).active() == {crew.name(): []})


@behaviour("registered has the tasks that a worker knows")
def _(crew: Crew) -> None:
    (names,) = crew.control.inspect(timeout=0.3).registered().values()
    assert {"hold", "meet", "note"} <= set(names)


@behaviour("a task that runs is STARTED if that is tracked")
def _(crew: Crew) -> None:
    with crew.holding("tracked") as result:
        wait_until(lambda: result.state == "STARTED")
        assert (result.ready(), result.successful(), result.failed()) == (False, False, False)
    assert crew.get(result) == "tracked done"


@behaviour("revoke lets a task go on that runs")
def _(crew: Crew) -> None:
    with crew.holding("going on") as result:
        crew.control.revoke(result.id)
        crew.settle()
    assert crew.outcome(result.id) == "going on done"


@behaviour("revoke of a result lets its task go on that runs")
def _(crew: Crew) -> None:
    with crew.holding("this, too") as result:
        result.revoke()
        crew.settle()
    assert crew.outcome(result.id) == "this, too done"


@behaviour("revoke of a task that has ended changes nothing")
def _(crew: Crew) -> None:
    result = crew.note.delay("ended")
    assert crew.get(result) == "ended"
    crew.control.revoke(result.id)
    result.revoke(terminate=True)
    crew.settle()
    assert (result.state, result.result) == ("SUCCESS", "ended")


@behaviour("an id that no task has can be revoked and forgotten")
def _(crew: Crew) -> None:
    unknown = crew.app.AsyncResult("11111111-2222-3333-4444-555555555555")
    unknown.revoke()
    unknown.revoke(terminate=True, signal="SIGKILL")
    unknown.forget()
    crew.control.revoke(["11111111-2222-3333-4444-555555555555"])


@behaviour("a task that was revoked while it waited raises TaskRevokedError")
def _(crew: Crew) -> None:
    result = crew.note.apply_async(("never",), countdown=WHILE_S)
    crew.settle()
    result.revoke()
    with pytest.raises(crew.side.module("exceptions").TaskRevokedError):
        crew.get(result)
    assert "never" not in crew.begun


@behaviour("revoke of a group revokes its tasks")
def _(crew: Crew) -> None:
    later = [crew.note.s(each).set(countdown=WHILE_S) for each in ("a", "b")]
    result = crew.side.module().group(later)()
    crew.settle()
    result.revoke()
    wait_until(lambda: [each.state for each in result] == ["REVOKED"] * 2)
    assert crew.begun == ["settled"]


@behaviour("a retry that waits can be revoked")
def _(crew: Crew) -> None:
    result = crew.again.delay()
    wait_until(lambda: "again" in crew.begun)
    crew.settle()
    result.revoke()
    wait_until(lambda: result.state == "REVOKED")
    assert crew.begun.count("again") == 1


@of_shop("Workers", "a task that is revoked before it runs does not run")
def _(shop: Shop) -> None:
    shop.settle()
    result = shop.note.apply_async((1,), countdown=0.5)
    shop.app.control.revoke(result.id)
    shop.until(lambda: result.state == "REVOKED")
    assert type(shop.error(result)).__name__ == "TaskRevokedError"
    assert shop.seen == []


@of_shop("Workers", "several tasks are revoked at once")
def _(shop: Shop) -> None:
    shop.settle()
    results = [shop.note.apply_async((1,), countdown=0.5) for _ in range(2)]
    shop.app.control.revoke([each.id for each in results])
    shop.until(lambda: [each.state for each in results] == ["REVOKED"] * 2)


@of_shop("Workers", "a result revokes its task")
def _(shop: Shop) -> None:
    shop.settle()
    result = shop.note.apply_async((1,), countdown=0.5)
    result.revoke()
    shop.until(lambda: result.state == "REVOKED")
