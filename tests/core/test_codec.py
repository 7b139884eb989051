"""The codec: exact round trips for every kind of type, and one clear error for everything else."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import LARGEST_INT, SMALLEST_INT, TypeCodec, decode_any, encode_any
from holdfast.core.errors import (
    HandlerInvalid,
    InputInvalid,
    OutputInvalid,
    PayloadError,
    PayloadNotEncodable,
    PayloadTooLarge,
)


class Colour(enum.Enum):
    """A value with a name."""

    RED = "red"


@dataclass
class Line:
    """A nested dataclass."""

    sku: str
    count: int = 1


@dataclass
class Order:
    """A dataclass input."""

    id: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None
    weight: float | None = None


class OrderStruct(msgspec.Struct):
    """A msgspec input."""

    id: int


class OrderDict(TypedDict):
    """A TypedDict input."""

    id: int


class OrderModel(pydantic.BaseModel):
    """A pydantic input whose names differ between Python and JSON."""

    model_config = pydantic.ConfigDict(extra="forbid")

    id: int
    placed_at: datetime | None = pydantic.Field(default=None, alias="placedAt")
    weight: float | None = None
    lines: list[Line] = []

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        """A value that is written by pydantic but cannot be read back."""
        return f"order {self.id}"


@dataclass
class Everything:
    """One field for every type that has a JSON form of its own."""

    moment: datetime
    day: date
    hour: time
    span: timedelta
    key: UUID
    price: Decimal
    raw: bytes
    colour: Colour
    tags: set[str]
    pair: tuple[int, str]
    by_number: dict[int, str]


@dataclass
class WithModel:
    """A dataclass around a pydantic model."""

    order: OrderModel


EVERYTHING = Everything(
    moment=datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    day=date(2026, 3, 29),
    hour=time(1, 30),
    span=timedelta(hours=1),
    key=UUID(int=7),
    price=Decimal("10.10"),
    raw=b"\x00\xff",
    colour=Colour.RED,
    tags={"a"},
    pair=(1, "x"),
    by_number={1: "one"},
)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, Order(1, [Line("a", 2)], "né")),
        (OrderStruct, OrderStruct(1)),
        (OrderDict, {"id": 1}),
        (OrderModel, OrderModel(id=1, placedAt=datetime(2026, 1, 1, tzinfo=UTC))),
        (OrderModel, OrderModel(id=1, lines=[Line("a")])),
        (WithModel, WithModel(OrderModel(id=1))),
        (list[OrderModel], [OrderModel(id=1), OrderModel(id=2)]),
        (Everything, EVERYTHING),
        (None, None),
        (int, LARGEST_INT),
        (dict[str, int], {"low": SMALLEST_INT}),
        (str | None, None),
        (Any, {"a": [1, 2.5, None, True, "text"]}),
        (object, [1]),
        (dict[str, object], {"a": 1, "b": [None, {"c": "text"}]}),
        (TypeVar("T"), "anything"),
    ],
)
def test_a_value_comes_back_as_it_was(type_: Any, value: Any) -> None:
    codec = TypeCodec(type_)
    assert codec.decode(codec.encode(value)) == value


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(SMALLEST_INT, LARGEST_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\\u0"), inner),
    max_leaves=20,
)


@given(_VALUES)
def test_any_json_value_round_trips_exactly(value: Any) -> None:
    again = decode_any(encode_any(value))
    assert again == value
    assert repr(again) == repr(value)


@given(st.recursive(st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_an_arbitrary_value_is_kept_exactly_or_refused(value: Any) -> None:
    try:
        text = encode_any(value)
    except PayloadError:
        return
    assert repr(decode_any(text)) == repr(value)


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (Order, {"id": "one"}, "$.id"),
        (Order, Order("one"), "$.id"),  # type: ignore[arg-type]
        (Order, {"id": 1, "lines": [{"sku": "a"}, {"sku": 2}]}, "$.lines[1].sku"),
        (Order, {}, "$"),
        (OrderStruct, None, "$"),
        (OrderDict, {"id": None}, "$.id"),
        (OrderModel, {"id": "one"}, "$.id"),
        (OrderModel, {"id": 1, "lines": [{"count": 1}]}, "$.lines[0].sku"),
        (OrderModel, OrderModel.model_construct(id="one"), "$.id"),  # type: ignore[arg-type]
        (list[OrderModel], [{"id": "one"}], "$[0]"),
        (int, "1", "$"),
        (None, 1, "$"),
    ],
)
def test_a_wrong_shape_is_refused_with_type_and_path(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        TypeCodec(type_).encode(value)
    assert caught.value.path == path
    assert caught.value.type_name in caught.value.message


def test_an_input_that_no_longer_decodes_says_so_and_is_not_retried() -> None:
    with pytest.raises(InputInvalid, match="no longer decodes as Order") as caught:
        TypeCodec(Order).decode('{"id": "one"}')
    assert caught.value.path == "$.id"
    assert not caught.value.retryable


def test_malformed_text_is_refused_like_a_wrong_shape() -> None:
    with pytest.raises(InputInvalid):
        decode_any('{"id": ')


def test_outputs_have_an_error_of_their_own() -> None:
    codec = TypeCodec(int, role="output")
    with pytest.raises(OutputInvalid, match="the output does not fit int"):
        codec.encode("x")
    with pytest.raises(OutputInvalid):
        codec.decode('"x"')


def test_pydantic_errors_do_not_repeat_the_value() -> None:
    with pytest.raises(InputInvalid) as caught:
        TypeCodec(OrderModel).encode({"id": "a secret"})
    assert "a secret" not in str(caught.value)


def _list_of_depth(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a\x00b", "NUL"),
        ({"a\x00": 1}, "NUL"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (float("nan"), "nan"),
        ([float("inf"), None], "inf"),
        ({"deep": [{"x": -float("inf")}]}, "-inf"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (2**64, "64 bits"),
        (10**400, "64 bits"),
        (_list_of_depth(201), "200 levels"),
        (_list_of_depth(50_000), "200 levels"),
        (object(), "object"),
        ({(1, 2): 3}, "tuple"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else type(value).__name__,
)
def test_what_the_databases_cannot_keep_is_refused(value: Any, says: str) -> None:
    with pytest.raises(PayloadNotEncodable, match=says):
        encode_any(value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, Order(1, weight=float("nan"))),
        (OrderModel, OrderModel(id=1, weight=float("inf"))),
        (OrderModel, {"id": 1, "weight": float("nan")}),
        (WithModel, WithModel(OrderModel(id=1, weight=float("nan")))),
    ],
)
def test_a_nan_is_not_turned_into_null(type_: Any, value: Any) -> None:
    with pytest.raises(PayloadNotEncodable, match="JSON cannot express"):
        TypeCodec(type_).encode(value)


def test_a_lone_surrogate_in_a_model_is_refused_alike() -> None:
    class Note(pydantic.BaseModel):
        text: str

    with pytest.raises(PayloadNotEncodable, match="lone surrogate"):
        TypeCodec(Note).encode(Note.model_construct(text="\ud800"))


def test_the_deepest_allowed_nesting_round_trips() -> None:
    value = _list_of_depth(200)
    assert decode_any(encode_any(value)) == value


def test_a_payload_over_the_limit_names_size_and_limit() -> None:
    with pytest.raises(PayloadTooLarge, match=r"1048579 bytes.*1048576"):
        encode_any("x" * (1024 * 1024 + 1))
    assert encode_any("x" * 8, limit=10) == '"xxxxxxxx"'


@dataclass
class Unresolvable:
    """A dataclass with a field of a type that does not exist."""

    value: Absent  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("type_", [Order | OrderModel, Unresolvable])
def test_a_type_without_a_json_form_is_refused_when_the_codec_is_made(type_: Any) -> None:
    with pytest.raises(HandlerInvalid, match="cannot be an input type"):
        TypeCodec(type_)
