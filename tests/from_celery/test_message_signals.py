"""Signals of what Celery does with messages: published, received, revoked; on both sides, as far as Celery has them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from signal import SIGTERM
from typing import Any

import pytest

from holdfast_celery import Celery
from tests.from_celery.sides import Side, running_worker
from tests.support.until import PATIENCE_S, wait_until

Seen = list[dict[str, Any]]

PAST = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def hearing(side: Side, name: str, sender: Any = None) -> Iterator[Seen]:
    """What the receivers of a signal are given while the block runs."""
    seen: Seen = []

    def receive(**given: Any) -> None:
        seen.append(given)

    signal = side.module("signals").__getattribute__(name)
    signal.connect(receive, sender=sender)
    try:
        yield seen
    finally:
        signal.disconnect(receive, sender=sender)


def test_a_task_is_announced_before_it_is_sent(side: Side) -> None:
    @side.task(name="work")
    def work(a: int, b: int = 0) -> int:
        return a + b

    @side.task(name="other")
    def other() -> None: ...

    with hearing(side, "before_task_publish", "work") as seen:
        other.delay()
        result = work.apply_async((1,), {"b": 2}, headers={"tenant": "acme"}, eta=PAST)
    assert side.get(result) == 3
    (given,) = seen
    args, kwargs, embedded = given["body"]
    assert (given["sender"], list(args), kwargs) == ("work", [1], {"b": 2})
    assert set(embedded) >= {"callbacks", "errbacks", "chain", "chord"}
    headers = given["headers"]
    told = {each: headers[each] for each in ("id", "task", "root_id", "retries", "tenant", "lang")}
    assert told == {
        "id": result.id,
        "task": "work",
        "root_id": result.id,
        "retries": 0,
        "tenant": "acme",
        "lang": "py",
    }
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("(1,)", "{'b': 2}")
    assert datetime.fromisoformat(headers["eta"]) == PAST
    assert headers["expires"] is None
    assert (given["exchange"], given["routing_key"]) == ("", side.app.conf.task_default_queue)
    assert given["properties"]["correlation_id"] == result.id
    assert given["retry_policy"] is None
    assert "declare" in given


def test_what_a_receiver_adds_travels_with_the_task(side: Side) -> None:
    seen: list[Any] = []

    @side.task(name="work", bind=True)
    def work(self: Any, b: int = 0) -> int:
        seen.append(self.request.headers)
        return b

    def receive(headers: dict[str, Any], body: Any, **_: Any) -> None:
        headers["X-Trace"] = f"{headers.get('X-Trace', '')}+here"
        body[1]["b"] = 7

    signal = side.module("signals").before_task_publish
    signal.connect(receive)
    try:
        assert side.get(work.delay()) == 7
        assert side.get(work.apply_async(headers={"X-Trace": "there"}, task_id="chosen")) == 7
    finally:
        signal.disconnect(receive)
    assert seen == [{"X-Trace": "+here"}, {"X-Trace": "there+here"}]


def test_each_task_of_a_canvas_is_announced_with_the_id_that_it_has(side: Side) -> None:
    ran: dict[str, set[str]] = {}

    @side.task(name="work", bind=True)
    def work(self: Any, given: Any = None, *, name: str) -> str:
        ran.setdefault(name, set()).add(self.request.id)
        return name

    def named(name: str) -> Any:
        return work.s(name=name)

    celery = side.module()
    with hearing(side, "before_task_publish") as seen:
        side.get(celery.chain(named("first"), named("second"), named("third"))())
        side.get(celery.chord([named("one"), named("two")])(named("body")))
        side.get(celery.chain(named("before"), celery.group(named("a"), named("b")), named("c"))())
        for each in celery.group(named("x"), named("y"))():
            side.get(each)
        side.get(work.apply_async(kwargs={"name": "linking"}, link=named("linked")))
        wait_until(lambda: side.run() or "linked" in ran)
    told: dict[str, set[str]] = {}
    for each in seen:
        told.setdefault(each["body"][1]["name"], set()).add(each["headers"]["id"])
    assert (told, len(ran)) == (ran, 14)


def test_a_task_that_is_run_in_the_caller_is_not_announced(side: Side) -> None:
    @side.task(name="work")
    def work() -> int:
        return 1

    side.app.conf.task_always_eager = True
    with hearing(side, "before_task_publish") as seen:
        work.delay()
        work.apply()
    assert seen == []


def test_a_task_is_received_before_each_of_its_attempts(side: Side) -> None:
    seen: list[tuple[Any, ...]] = []

    @side.task(name="work", bind=True)
    def work(self: Any, a: int) -> int:
        seen.append(("run", self.request.retries))
        if not self.request.retries:
            raise self.retry(countdown=0)
        return a

    def on_received(sender: Any, request: Any, **_: Any) -> None:
        told = request._request_dict
        assert told == request.request_dict
        assert (request.task_id, request.task_name) == (request.id, request.name)
        assert (request.task.name, request.hostname) == ("work", told.get("host", request.hostname))
        seen.append(("received", request.id, request.name, list(request.args), request.kwargs))
        seen.append((told["id"], told["task"], told["retries"], told["tenant"]))

    def on_prerun(task_id: str, **_: Any) -> None:
        seen.append(("prerun", task_id))

    with ExitStack() as connected:
        for name, receiver in (("task_received", on_received), ("task_prerun", on_prerun)):
            signal = getattr(side.module("signals"), name)
            signal.connect(receiver)
            connected.callback(signal.disconnect, receiver)
        result = work.apply_async((5,), headers={"tenant": "acme"})
        assert side.get(result) == 5
    id = result.id
    assert seen == [
        ("received", id, "work", [5], {}),
        (id, "work", 0, "acme"),
        ("prerun", id),
        ("run", 0),
        ("received", id, "work", [5], {}),
        (id, "work", 1, "acme"),
        ("prerun", id),
        ("run", 1),
    ]


def test_a_task_that_was_revoked_or_has_expired_is_told_of_once(side: Side) -> None:
    @side.task(name="work")
    def work(a: int) -> int:
        return a

    @side.task(name="other")
    def other() -> int:
        return 1

    with hearing(side, "task_revoked", side.app.tasks["work"]) as seen, side.work():
        assert other.delay().get(timeout=PATIENCE_S, interval=0.01) == 1
        # Celery looks whether a task was revoked when that is due.
        revoked = work.apply_async((1,), countdown=3, headers={"tenant": "acme"})
        another = other.apply_async(countdown=3)
        assert other.delay().get(timeout=PATIENCE_S, interval=0.01) == 1
        revoked.revoke()
        another.revoke()
        expired = work.apply_async((2,), expires=PAST)
        wait_until(lambda: len(seen) == 2)
        wait_until(lambda: another.state == "REVOKED")
    by_id = {each["request"].id: each for each in seen}
    assert set(by_id) == {revoked.id, expired.id}
    for result, argument, is_expired in ((revoked, 1, False), (expired, 2, True)):
        given = by_id[result.id]
        assert given["sender"].name == given["request"].task == "work"
        assert list(given["request"].args) == [argument]
        told = (given["terminated"], given["signum"], given["expired"])
        assert told == (False, None, is_expired)
    assert by_id[revoked.id]["request"].headers == {"tenant": "acme"}


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest) -> Iterator[Celery]:
    """An application of ours on each store."""
    made = Celery("shop", url=request.getfixturevalue(f"{request.param}_url"))
    yield made
    made.close()


def revoke_and_roll_back(app: Celery, result: Any) -> None:
    """Terminate a task in a transaction that comes to nothing."""
    with app.transaction() as tx, app.using(tx):
        result.revoke(terminate=True)
        raise KeyError("rolled back")


def test_a_task_that_is_terminated_is_told_of_where_that_is_committed(app: Celery) -> None:
    from holdfast_celery.signals import task_revoked

    begun, gate, seen = threading.Event(), threading.Event(), Seen()

    @app.task(name="work")
    def work(a: int) -> None:
        begun.set()
        gate.wait(PATIENCE_S)

    def receive(**given: Any) -> None:
        seen.append(given | {"thread": threading.get_ident()})

    task_revoked.connect(receive)
    try:
        with running_worker(app):
            result = work.delay(3)
            assert begun.wait(PATIENCE_S)
            with pytest.raises(KeyError):
                revoke_and_roll_back(app, result)
            assert seen == []
            result.revoke(terminate=True)
            (given,) = seen
            gate.set()
    finally:
        task_revoked.disconnect(receive)
    assert (given["terminated"], given["signum"], given["expired"]) == (True, SIGTERM, False)
    assert (given["request"].id, given["request"].args) == (result.id, (3,))
    assert given["thread"] == threading.get_ident()
    assert len(seen) == 1


def test_what_a_receiver_changes_is_kept_where_a_task_goes_on_after_a_link(app: Celery) -> None:
    from holdfast_celery import chain
    from holdfast_celery.signals import before_task_publish

    seen: dict[str, Any] = {}

    @app.task(name="work", bind=True)
    def work(self: Any, given: Any = None, *, name: str) -> str:
        seen[name] = self.request.headers
        return name

    def receive(headers: dict[str, Any], body: Any, **_: Any) -> None:
        headers["of"] = body[1]["name"]

    before_task_publish.connect(receive)
    first = work.s(name="first")
    first.link(work.s(name="linked"))
    first.link_error(work.si(name="never"))
    try:
        with running_worker(app):
            result = chain(first, work.s(name="second"))()
            assert result.get(timeout=PATIENCE_S) == "second"
            wait_until(lambda: "linked" in seen)
    finally:
        before_task_publish.disconnect(receive)
    assert seen == {name: {"of": name} for name in ("first", "second", "linked")}
