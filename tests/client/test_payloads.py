"""Payloads at the edges: exactly the same value comes back on both databases, or the same clear error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from holdfast import Holdfast, Job
from holdfast.core.codec import SIZE_LIMIT
from holdfast.core.errors import InputInvalid, PayloadError, PayloadNotEncodable, PayloadTooLarge


@dataclass
class Order:
    id: int
    note: str = ""


class Parcel(msgspec.Struct):
    weight: float


class Letter(pydantic.BaseModel):
    to: str


class Ticket(TypedDict):
    seat: str


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


ROUND_TRIPS = [
    None,
    True,
    0,
    -1,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    0.1,
    1e300,
    5e-324,
    "",
    "🐎 👩‍👩‍👧 é é \u200b",
    "\\u0000 is six characters",
    "quotes \" ' ` and \\ and / and \x7f and \x1f",
    "%s %(now)s $1 :now ? {} --comment; drop table sale",
    [],
    {},
    {"": {"": [None]}},
    {"ключ": ["значение"]},
    nested(200),
    "x" * (SIZE_LIMIT - 2),
]


REFUSED: list[tuple[Any, type[PayloadError]]] = [
    ("\0", PayloadNotEncodable),
    ({"a\0b": 1}, PayloadNotEncodable),
    ("\ud800", PayloadNotEncodable),
    ({"\udfff": 1}, PayloadNotEncodable),
    (math.nan, PayloadNotEncodable),
    ([math.inf], PayloadNotEncodable),
    (2**63, PayloadNotEncodable),
    ({"n": -(2**63) - 1}, PayloadNotEncodable),
    (10**40, PayloadNotEncodable),
    (nested(201), PayloadNotEncodable),
    (nested(100_000), PayloadNotEncodable),
    (object(), PayloadNotEncodable),
    ("x" * (SIZE_LIMIT - 1), PayloadTooLarge),
]


async def test_a_payload_comes_back_exactly(app: Holdfast) -> None:
    with app.transaction() as tx:
        chains = [app.start(tx, "exact", value) for value in ROUND_TRIPS]
        within = [app.chains.get(chain, tx=tx).input for chain in chains]
    after = [app.jobs.get(chain).input for chain in chains]
    assert within == after == ROUND_TRIPS
    assert [type(each) for each in after] == [type(each) for each in ROUND_TRIPS]


async def test_what_cannot_be_kept_is_refused_before_anything_is_written(app: Holdfast) -> None:
    with app.transaction() as tx:
        for value, error in REFUSED:
            with pytest.raises(error):
                app.start(tx, "refused", value)
            with pytest.raises(error):
                app.start_many(tx, "refused", [1, value, 2])
            with pytest.raises(error):
                app.publish(tx, "refused", value)
        app.start(tx, "kept")
    assert [each.type for each in app.jobs.list()] == ["kept"]


async def test_the_limit_can_be_changed(url: str, app: Holdfast) -> None:
    small = Holdfast(url, open_types=True, payload_limit=10, hints=False)
    with small.transaction() as tx:
        small.start(tx, "small", "12345678")
        with pytest.raises(PayloadTooLarge, match="11 bytes, the limit is 10"):
            small.start(tx, "small", "123456789")
    await small.aclose()


Handler = Callable[..., Any]


def with_order(job: Job[Order]) -> None: ...
def with_parcel(job: Job[Parcel]) -> None: ...
def with_letter(job: Job[Letter]) -> None: ...
def with_ticket(job: Job[Ticket]) -> None: ...
def with_dict(job: Job[dict[str, int]]) -> None: ...
def with_nothing(job: Job[None]) -> None: ...


FITTING: list[tuple[Handler, Any, Any]] = [
    (with_order, Order(1, "n"), {"id": 1, "note": "n"}),
    (with_order, {"id": 1}, {"id": 1}),
    (with_parcel, Parcel(0.5), {"weight": 0.5}),
    (with_letter, Letter(to="ana"), {"to": "ana"}),
    (with_letter, {"to": "ana"}, {"to": "ana"}),
    (with_ticket, {"seat": "4a"}, {"seat": "4a"}),
    (with_dict, {"a": 1}, {"a": 1}),
    (with_nothing, None, None),
]
MISFITS: list[tuple[Handler, Any, str]] = [
    (with_order, {"id": "one"}, "$.id"),
    (with_order, {}, "$"),
    (with_order, None, "$"),
    (with_parcel, Order(1), "$"),
    (with_letter, {"to": 7}, "$.to"),
    (with_ticket, {"seat": 4}, "$.seat"),
    (with_dict, {"a": "b"}, "$[...]"),
    (with_nothing, 0, "$"),
]


@pytest.fixture
def typed(app: Holdfast) -> Holdfast:
    """The application with a handler for each way to declare an input."""
    for handler in (with_order, with_parcel, with_letter, with_ticket, with_dict, with_nothing):
        app.job(handler.__name__)(handler)
    return app


async def test_the_handler_s_type_accepts_what_fits_it(typed: Holdfast) -> None:
    with typed.transaction() as tx:
        chains = [typed.start(tx, handler, value) for handler, value, _ in FITTING]
    stored = [typed.chains.get(chain).input for chain in chains]
    assert stored == [each for _, _, each in FITTING]


async def test_a_wrong_shape_is_refused_with_its_place(typed: Holdfast) -> None:
    with typed.transaction() as tx:
        for handler, value, path in MISFITS:
            with pytest.raises(InputInvalid) as refusal:
                typed.start(tx, handler, value)
            assert refusal.value.path == path
        typed.start(tx, "kept")
    assert [each.type for each in typed.jobs.list()] == ["kept"]


async def test_an_event_has_to_fit_everybody_who_is_known_to_subscribe(app: Holdfast) -> None:
    app.on("placed", name="first")(with_order)
    app.on("placed", name="second")(with_dict)
    with app.transaction() as tx:
        app.publish(tx, "placed", {"id": 1})
        with pytest.raises(InputInvalid):
            app.publish(tx, "placed", {"id": 1, "note": "not a number"})
        with pytest.raises(InputInvalid):
            app.publish(tx, "placed", {"n": 1})
        app.publish(tx, "unheard.of", {"anything": "goes"})


async def test_a_declared_event_is_checked_though_nobody_here_handles_it(app: Holdfast) -> None:
    app.declare("paid", Order)
    with app.transaction() as tx:
        app.publish(tx, "paid", Order(1))
        with pytest.raises(InputInvalid):
            app.publish(tx, "paid", {"id": None})
