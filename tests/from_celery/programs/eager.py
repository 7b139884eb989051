"""What Celery's page on testing says: apply, eager mode, and parts of tasks that are replaced."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from tests.from_celery.programs.shop import C, Shop, behaviour


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


@behaviour("Testing", "the function of a task can be replaced")
def _(shop: Shop) -> None:
    with patch.object(shop.add, "run", return_value="replaced"):
        assert shop.add.run(2, 2) == "replaced"
    assert shop.add.run(2, 2) == 4


@behaviour("Testing", "retry can be replaced, and raises Retry")
def _(shop: Shop) -> None:
    retry = shop.side.module("exceptions").Retry
    shop.flaws["replaced"] = 1
    with patch.object(shop.flaky, "retry", side_effect=retry()), pytest.raises(retry):
        shop.flaky("replaced")


@behaviour("Testing", "Retry says what, why and when")
def _(shop: Shop) -> None:
    retry = shop.side.module("exceptions").Retry
    made = retry(exc=ValueError("busy"), when=5)
    assert (str(made), repr(made.exc), made.when) == (
        "Retry in 5s: ValueError('busy')",
        "ValueError('busy')",
        5,
    )
    assert (str(retry("later")), retry().exc, retry().when) == ("later", None, None)


@behaviour("Testing", "a shared task is in the application")
def _(shop: Shop) -> None:
    name = f"shared.{uuid4()}"

    @shop.side.module().shared_task(name=name)  # type: ignore[untyped-decorator]
    def shared() -> None: ...

    assert shop.app.tasks[name].name == name


@behaviour("Testing", "apply without throw returns what failed")
def _(shop: Shop) -> None:
    assert shop.fail.apply(throw=False).state == "FAILURE"


@eager("what fails is raised at once if that is wanted")
def _(shop: Shop) -> None:
    shop.app.conf.task_eager_propagates = True
    try:
        with pytest.raises(ValueError, match="lost"):
            shop.fail.delay("lost")
    finally:
        shop.app.conf.task_eager_propagates = False


@eager("an eager task has the id that it was given")
def _(shop: Shop) -> None:
    result = shop.look.apply_async(task_id="of-a-test")
    assert (result.id, result.get()["id"]) == ("of-a-test", "of-a-test")


@eager("an eager countdown is not waited for")
def _(shop: Shop) -> None:
    assert shop.add.apply_async((2, 2), countdown=3600).get() == 4


@eager("an eager group has its results")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    assert (result.get(), result.successful(), len(result)) == ([2, 4], True, 2)


@eager("eager signals and hooks are sent in the caller")
def _(shop: Shop) -> None:
    names: list[str] = []

    def receive(sender: Any, **_: Any) -> None:
        names.append(sender.name)

    signal = shop.side.module("signals").task_success
    signal.connect(receive, weak=False)
    try:
        shop.add.delay(1, 1)
    finally:
        signal.disconnect(receive)
    assert names == ["add"]
