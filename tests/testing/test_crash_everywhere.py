"""Durable functions whose worker is killed at every boundary, as a user's own tests would do it. On both stores."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Holdfast, Job, Permanent, SyncJob
from holdfast_testing.kit import Kit

app = Holdfast()
effects: list[str] = []
"""What was done outside the database; steps do it again when they are killed before their record."""


@dataclass
class Order:
    """What the functions are about."""

    id: int
    mails: tuple[str, ...] = ()


async def reserve(tx: Any, order: Order) -> str:
    """An atomic step: its row and its record commit together."""
    await tx.execute("insert into reserved values (7)")
    return f"reserved {order.id}"


async def release(tx: Any, reserved: str) -> None:
    """Its undoing."""
    await tx.execute("delete from reserved")


async def charge(order: Order) -> int:
    """A step with an effect outside the database."""
    effects.append(f"charge {order.id}")
    return 42


async def refund(paid: int) -> None:
    """Its undoing."""
    effects.append(f"refund {paid}")


async def send(to: str) -> str:
    """One of several at the same time."""
    effects.append(f"mail {to}")
    return to


@app.job("label")
async def label(job: Job[int]) -> str:
    """A chain that the function calls."""
    return f"label {job.input}"


@app.job("order")
async def order(job: Job[Order]) -> dict[str, Any]:
    """Steps, a wait and calls, and a failure if it is not approved."""
    held = await job.step("reserve", reserve, job.input, atomic=True, undo=release)
    paid = await job.step("charge", charge, job.input, undo=refund)
    await asyncio.gather(*(job.step("mail", send, to, key=to) for to in job.input.mails))
    approved = await job.wait_for("approved", key=job.input.id, timeout="3d", returns=bool)
    labels = await job.run_many(label, [1, 2])
    if not approved:
        raise Permanent("declined")
    return {"held": held, "paid": paid, "labels": labels}


def double(number: int) -> int:
    """A step of a sync function."""
    effects.append(f"double {number}")
    return number * 2


def keep(tx: Any, number: int) -> int:
    """An atomic step of a sync function."""
    tx.execute("insert into reserved values (8)")
    return number


@app.job("count")
def count(job: SyncJob[int]) -> int:
    """The same in a thread."""
    twice = job.step("double", double, job.input)
    kept = job.step("keep", keep, twice, atomic=True)
    job.sleep("1d")
    return kept + job.wait_for("more", returns=int)


@app.job("careless")
async def careless(job: Job[int]) -> int:
    """Depends on what no step has recorded."""
    effects.append("begun")
    await job.step("double", double_later, job.input)
    return len(effects)


async def double_later(number: int) -> int:
    """A step."""
    return number * 2


ON_SQLITE, ON_POSTGRES = (
    pytest.mark.parametrize(
        "holdfast_url", [one, pytest.param(other, marks=pytest.mark.lasting)], indirect=True
    )
    for one, other in (("sqlite", "postgres"), ("postgres", "sqlite"))
)
"""Where each function dies everywhere in every run of the tests; on the other store it does so with `-m lasting`."""


@pytest.fixture
def holdfast_app() -> Holdfast:
    return app


@pytest.fixture(autouse=True)
def reserved(holdfast: Kit) -> None:
    """The user's own table."""
    with app.transaction() as tx:
        tx.execute("create table reserved (id integer)")


def reset() -> None:
    """Put the user's own things back."""
    effects.clear()
    with app.transaction() as tx:
        tx.execute("delete from reserved")


def rows() -> Any:
    """What must be the same however often workers die: the table, and which effects there were at all."""
    with app.transaction() as tx:
        found = tx.execute("select id from reserved order by id").fetchall()
    return [each[0] for each in found], sorted(set(effects))


@ON_SQLITE
def test_a_function_ends_the_same_wherever_its_worker_dies(holdfast: Kit) -> None:
    killed = holdfast.crash_everywhere(
        order, Order(7, ("a", "b")), signals={"approved": True}, rows=rows, reset=reset
    )
    assert killed >= 12


@ON_SQLITE
def test_a_function_is_undone_wherever_its_worker_dies(holdfast: Kit) -> None:
    killed = holdfast.crash_everywhere(
        order, Order(7), signals={"approved": False}, rows=rows, reset=reset
    )
    assert killed >= 12
    assert rows() == ([], ["charge 7", "refund 42"])


@ON_POSTGRES
def test_a_sync_function_ends_the_same_wherever_its_worker_dies(holdfast: Kit) -> None:
    assert holdfast.crash_everywhere(count, 4, signals={"more": 1}, rows=rows, reset=reset) >= 8


def test_a_function_that_depends_on_what_was_not_recorded_is_found(holdfast: Kit) -> None:
    with pytest.raises(AssertionError) as raised:
        holdfast.crash_everywhere(careless, 4, reset=reset)
    assert "a worker that died before double was recorded" in str(raised.value)
    assert "output: 2 instead of 1" in str(raised.value)


def test_a_wait_that_nobody_ends_is_named(holdfast: Kit) -> None:
    with pytest.raises(AssertionError, match=r"waits for more without a timeout"):
        holdfast.crash_everywhere(count, 4, reset=reset)


@ON_POSTGRES
async def test_an_async_test_kills_workers_too(holdfast: Kit) -> None:
    async def reset_async() -> None:
        reset()

    killed = await holdfast.crash_everywhere_async(
        count, 4, signals={"more": 1}, rows=rows, reset=reset_async
    )
    assert killed >= 8
    await app.aclose()
