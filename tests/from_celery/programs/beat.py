"""What Celery's page on periodic tasks says: entries, and what is sent when one is due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from tests.from_celery.programs.shop import Check, behaviours_of
from tests.from_celery.sides import Side
from tests.support.until import wait_until

PERIODIC: dict[str, Check] = {}
behaviour = behaviours_of("Periodic tasks", PERIODIC)


class Beat:
    """Tasks that note what they are given, and the beat schedule."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.app = side.app
        self.seen: list[Any] = []
        self.crontab = side.module("schedules").crontab

        @side.task(name="beat.note")
        def note(*args: Any, **kwargs: Any) -> None:
            beat.seen.append((args, kwargs))

        @side.task(name="beat.look", bind=True)
        def look(self: Any) -> None:
            beat.seen.append(self.request.headers["source"])

        beat = self
        self.note, self.look = note, look

    def begin(self) -> None:
        """Forget what was seen before."""
        self.seen.clear()

    def due(self, name: str) -> list[Any]:
        """What is seen once an entry was due and what it started has run."""
        self.side.beat(name)
        return self.settle()

    def settle(self) -> list[Any]:
        """What is seen once all that was sent before has run."""
        mark = str(uuid4())
        self.note.delay(mark)
        self.side.run()
        wait_until(lambda: ((mark,), {}) in self.seen)
        self.seen.remove(((mark,), {}))
        return self.seen

    def entry(self, name: str, **fields: Any) -> list[Any]:
        """What is seen once an entry with these fields was due."""
        self.app.conf.beat_schedule = {name: {"task": "beat.note", "schedule": 30.0, **fields}}
        return self.due(name)


def schedules(says: str, make: Callable[[Beat], Any]) -> None:
    """Add a program that shows that an entry may have such a schedule."""

    @behaviour(says)
    def check(beat: Beat) -> None:
        assert beat.entry(says, schedule=make(beat)) == [((), {})]


schedules("a schedule may be a number of seconds", lambda _: 30)
schedules("a schedule may be a fraction of seconds", lambda _: 12.5)
schedules("a schedule may be a timedelta", lambda _: timedelta(minutes=5))
schedules("a schedule may be a crontab", lambda beat: beat.crontab(hour=7, minute=30))
schedules("a crontab may have lists of numbers", lambda beat: beat.crontab(minute=[0, 30]))


@behaviour("an entry has positional arguments")
def _(beat: Beat) -> None:
    assert beat.entry("positional", args=(16, 16)) == [((16, 16), {})]


@behaviour("the arguments of an entry may be a list")
def _(beat: Beat) -> None:
    assert beat.entry("listed", args=[1]) == [((1,), {})]


@behaviour("an entry has keyword arguments")
def _(beat: Beat) -> None:
    assert beat.entry("named", kwargs={"a": 1}) == [((), {"a": 1})]


@behaviour("an entry has both")
def _(beat: Beat) -> None:
    assert beat.entry("both", args=(1,), kwargs={"b": 2}) == [((1,), {"b": 2})]


@behaviour("an entry's options are those of apply_async: headers")
def _(beat: Beat) -> None:
    options = {"headers": {"source": "beat"}}
    assert beat.entry("headers", task="beat.look", options=options) == ["beat"]


@behaviour("an entry's options are those of apply_async: expires")
def _(beat: Beat) -> None:
    assert beat.entry("in time", args=[1], options={"expires": 600}) == [((1,), {})]


@behaviour("an entry's options are those of apply_async: countdown")
def _(beat: Beat) -> None:
    assert beat.entry("later", args=[1], options={"countdown": 3600}) == []


@behaviour("an entry's options are those of apply_async: task_id")
def _(beat: Beat) -> None:
    beat.entry("chosen", args=[1], options={"task_id": "id-of-an-entry"})
    wait_until(lambda: beat.app.AsyncResult("id-of-an-entry").state == "SUCCESS")


@behaviour("an entry that is due again starts its task again")
def _(beat: Beat) -> None:
    beat.entry("again", args=[1], schedule=1.0)
    assert beat.due("again") == [((1,), {})] * 2


@behaviour("a schedule that is set replaces the one before")
def _(beat: Beat) -> None:
    beat.app.conf.beat_schedule = {"old": {"task": "beat.note", "schedule": 30.0}}
    beat.app.conf.beat_schedule = {"new": {"task": "beat.note", "schedule": 30.0}}
    assert list(beat.app.conf.beat_schedule) == ["new"]
    assert beat.due("new") == [((), {})]


@behaviour("an entry can be added to the schedule")
def _(beat: Beat) -> None:
    beat.app.conf.beat_schedule = {"first": {"task": "beat.note", "schedule": 30.0}}
    beat.app.conf.beat_schedule["added"] = {
        "task": "beat.note",
        "schedule": 30.0,
        "args": ["added"],
    }
    assert beat.due("added") == [(("added",), {})]


@behaviour("entries can be added with update")
def _(beat: Beat) -> None:
    beat.app.conf.beat_schedule.update(
        {"updated": {"task": "beat.note", "schedule": 30.0, "args": ["updated"]}}
    )
    assert beat.due("updated") == [(("updated",), {})]


@behaviour("add_periodic_task takes a signature, and a name that it returns")
def _(beat: Beat) -> None:
    name = beat.app.add_periodic_task(10.0, beat.note.s("hello"), name="add every 10")
    assert name == "add every 10"
    assert beat.due(name) == [(("hello",), {})]


@behaviour("add_periodic_task names an entry by its signature")
def _(beat: Beat) -> None:
    name = beat.app.add_periodic_task(30.0, beat.note.s("world"))
    assert name == "beat.note('world')"
    assert beat.due(name) == [(("world",), {})]


@behaviour("add_periodic_task of the same signature replaces the first")
def _(beat: Beat) -> None:
    first = beat.app.add_periodic_task(30.0, beat.note.s("same"))
    second = beat.app.add_periodic_task(60.0, beat.note.s("same"))
    assert first == second
    assert beat.due(second) == [(("same",), {})]


@behaviour("add_periodic_task of the same signature under two names keeps both")
def _(beat: Beat) -> None:
    for name in ("one name", "another name"):
        beat.app.add_periodic_task(30.0, beat.note.s("twice"), name=name)
    beat.side.beat("one name")
    assert beat.due("another name") == [(("twice",), {})] * 2


@behaviour("add_periodic_task takes a task")
def _(beat: Beat) -> None:
    name = beat.app.add_periodic_task(30.0, beat.note, name="of a task")
    assert beat.due(name) == [((), {})]


@behaviour("add_periodic_task takes arguments")
def _(beat: Beat) -> None:
    name = beat.app.add_periodic_task(
        30.0, beat.note.s("own", a=1), ("first",), {"b": 2}, name="with arguments"
    )
    assert beat.due(name) == [(("first", "own"), {"a": 1, "b": 2})]


@behaviour("add_periodic_task takes options")
def _(beat: Beat) -> None:
    name = beat.app.add_periodic_task(30.0, beat.note.s(), name="with options", countdown=3600)
    assert beat.due(name) == []


@behaviour("add_periodic_task keeps the options of its signature")
def _(beat: Beat) -> None:
    later = beat.note.s().set(countdown=3600)
    name = beat.app.add_periodic_task(30.0, later, name="with its own options")
    assert beat.due(name) == []


@behaviour("add_periodic_task takes a crontab")
def _(beat: Beat) -> None:
    monday = beat.crontab(hour=7, minute=30, day_of_week=1)
    name = beat.app.add_periodic_task(monday, beat.note.s("Happy Mondays!"))
    assert beat.due(name) == [(("Happy Mondays!",), {})]
