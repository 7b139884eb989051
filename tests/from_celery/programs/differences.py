"""What ends otherwise here, in the words of the page for users."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.from_celery.programs.shop import Colour, Shop, difference


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
    "A task that runs is `STARTED` without `task_track_started`, too, and its `info` is `None`.",
    celery=["PENDING", None],
    here=["STARTED", None],
)
def _(shop: Shop) -> Any:
    return shop.get(shop.own_state.delay())


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


def refused(says: str, act: Callable[[Shop], Any], *, celery: Any = "accepted") -> None:
    """Add something that is refused here; what Celery returns matters where it is given."""

    def try_it(shop: Shop) -> Any:
        found = _or_refused(lambda: act(shop))
        return found if found == "refused" or celery != "accepted" else "accepted"

    difference(says, celery=celery, here="refused")(try_it)


def _or_refused(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception:
        return "refused"


def _nothing() -> None: ...


refused(
    "`bytes` are refused as an argument.",
    lambda shop: shop.get(shop.echo.delay(b"ab")),
    celery=b"ab",
)
refused(
    "Numbers that other programs cannot read, `nan`, `inf` and integers beyond 64 bits, are refused.",
    lambda shop: shop.get(shop.echo.delay(2**70)),
    celery=2**70,
)
refused(
    "Keys of a dict that are not texts are refused instead of turned into texts.",
    lambda shop: shop.get(shop.echo.delay({1: 2})),
    celery={"1": 2},
)
refused(
    "A signature is refused as an argument: give the task's name, and call `app.send_task`.",
    lambda shop: shop.echo.delay(shop.add.s(1, 1)),
)
refused(
    "An `eta` without a time zone is refused.",
    lambda shop: shop.get(
        shop.add.apply_async((1, 1), eta=datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1))
    ),
    celery=2,
)
refused(
    "A task that the application does not know is refused where it is started.",
    lambda shop: shop.app.send_task("nobody"),
)
refused(
    "A queue that neither settings nor decorators name is refused where it is chosen.",
    lambda shop: shop.add.apply_async((1, 1), queue="elsewhere"),
)
refused(
    "A priority is 0 to 9.",
    lambda shop: shop.get(shop.add.apply_async((1, 1), priority=100)),
    celery=2,
)
refused(
    "`soft_time_limit` is refused in a decorator.",
    lambda shop: shop.side.task(name="soft", soft_time_limit=5)(_nothing),
)
refused(
    "`result.children` and `collect()` are refused.",
    lambda shop: shop.end(shop.add.apply_async((1, 1), link=shop.note.s())).children and None,
)
refused(
    "A crontab with both kinds of days is refused.",
    lambda shop: shop.side.module("schedules").crontab(0, 0, day_of_week=1, day_of_month="1-7"),
)
refused(
    "A beat entry that is `relative` is refused.",
    lambda shop: shop.app.conf.update(
        beat_schedule={"r": {"task": "add", "schedule": timedelta(hours=1), "relative": True}}
    ),
)
