"""Values that JSON does not have: as they travel through tasks, and as they are stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import OutputInvalid, PayloadNotEncodable
from holdfast_celery import Celery, chain, group
from holdfast_celery.calls import tag
from holdfast_testing.kit import Kit
from holdfast_values.tagged_values import untag_value


class Shape(Enum):
    """An enum at the top of a module."""

    ROUND = "round"


class Order:
    """A class with an enum of its own, as models have them."""

    class Status(Enum):
        """One within a class."""

        PAID = 1


class Size(IntEnum):
    """Numbers."""

    LARGE = 3


class Mood(StrEnum):
    """Texts."""

    GOOD = "good"


class Rights(Flag):
    """Members that can be joined."""

    READ = 1
    WRITE = 2


STORED: dict[str, tuple[Any, Any]] = {
    "a datetime": (
        datetime(2026, 11, 18, 12, tzinfo=UTC),
        {"__datetime__": "2026-11-18T12:00:00Z"},
    ),
    "a datetime without a zone": (
        datetime(2026, 11, 18, 12),  # noqa: DTZ001  # as programs have them
        {"__datetime__": "2026-11-18T12:00:00"},
    ),
    "a date": (date(2026, 11, 18), {"__date__": "2026-11-18"}),
    "a time": (time(12, 30), {"__time__": "12:30:00"}),
    "a timedelta": (timedelta(days=-1, seconds=5), {"__timedelta__": "-PT86395S"}),
    "a UUID": (UUID(int=7), {"__uuid__": str(UUID(int=7))}),
    "a decimal": (Decimal("12.50"), {"__decimal__": "12.50"}),
    "a tuple": ((1, (2,)), {"__tuple__": [1, {"__tuple__": [2]}]}),
    "an enum": (Shape.ROUND, {"__enum__": f"{__name__}:Shape.ROUND"}),
    "an enum within a class": (Order.Status.PAID, {"__enum__": f"{__name__}:Order.Status.PAID"}),
    "a number's enum": (Size.LARGE, {"__enum__": f"{__name__}:Size.LARGE"}),
    "a text's enum": (Mood.GOOD, {"__enum__": f"{__name__}:Mood.GOOD"}),
    "a dict like a tag": ({"__date__": "2026"}, {"__dict__": {"__date__": "2026"}}),
    "a dict like the tag of a dict": (
        {"__dict__": {"__date__": "2026"}},
        {"__dict__": {"__dict__": {"__dict__": {"__date__": "2026"}}}},
    ),
    "a dict with a tag and more": ({"__date__": "2026", "b": 1}, {"__date__": "2026", "b": 1}),
    "a dict with a tag's name unknown here": ({"__set__": [1]}, {"__set__": [1]}),
}


@pytest.mark.parametrize("what", STORED)
def test_a_value_is_stored_readably_and_read_as_it_was(what: str) -> None:
    value, stored = STORED[what]
    assert tag(value, "a value") == stored
    again = untag_value(json.loads(json.dumps(stored)))
    assert (again, type(again)) == (value, type(value))


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.text(),
    st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0)),
    st.dates(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.timedeltas(timedelta(days=-99_000), timedelta(days=99_000)),
    st.sampled_from([Shape.ROUND, Order.Status.PAID, Size.LARGE, Mood.GOOD]),
)
KEYS = st.sampled_from(["a", "__date__", "__dict__", "__tuple__", "__enum__", "__decimal__"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=2),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_every_value_is_read_as_it_was_also_a_dict_that_looks_like_a_tag(value: Any) -> None:
    again = untag_value(json.loads(json.dumps(tag(value, "a value"))))
    assert again == value
    assert repr(again) == repr(value)


@pytest.mark.parametrize(
    "row",
    [
        {"__date__": "not a date"},
        {"__enum__": 5},
        {"__tuple__": "x"},
        {"__dict__": [1]},
        {"$date": 1},
    ],
    ids=str,
)
def test_what_was_stored_before_there_were_tags_is_read_as_it_is(row: Any) -> None:
    assert untag_value(row) == row


def test_what_could_not_be_read_again_is_refused() -> None:
    class Local(Enum):
        ONE = 1

    for value in (Local.ONE, Rights.READ | Rights.WRITE, {1, 2}, b"x", object(), {1: 2}):
        with pytest.raises(PayloadNotEncodable, match="a value contains"):
            tag(value, "a value")
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(PayloadNotEncodable, match="nested too deeply"):
        tag(nested, "a value")


@pytest.fixture
def app(any_url: str) -> Iterator[Celery]:
    """An application on each store."""
    with closing(Celery("values", url=any_url)) as made:
        yield made


@pytest.fixture
def kit(app: Celery, any_url: str) -> Iterator[Kit]:
    """What runs its tasks."""
    with closing(Kit(app, any_url)) as made:
        yield made


def test_values_travel_through_a_canvas_its_links_and_its_results(app: Celery, kit: Kit) -> None:
    seen: list[Any] = []
    values = [value for value, _ in STORED.values()]

    @app.task(name="same")
    def same(value: Any, **named: Any) -> Any:
        assert all(each == value for each in named.values())
        return value

    @app.task(name="note")
    def note(*args: Any) -> None:
        seen.append(args)

    @app.task(name="fail")
    def fail(*args: Any) -> None:
        raise ValueError

    @app.task(name="hear")
    def hear(request: Any, error: Exception, trace: str, more: Any) -> None:
        seen.append((*request.args, more))

    chained = chain(same.s(values, again=values), group(same.s(), same.s()), same.s())()
    same.apply_async((values,), link=note.s(Shape.ROUND))
    fail.apply_async((values,), link_error=hear.s((1,)))
    kit.run_until_idle()
    assert chained.get(timeout=1) == [values, values]
    assert chained.parent.results[0].get(timeout=1) == values
    assert sorted(seen, key=repr) == sorted([(values, Shape.ROUND), (values, (1,))], key=repr)
    stored = json.dumps(app.chains.get(chained.id).input)
    assert '{"__decimal__": "12.50"}' in stored


def test_a_job_waits_for_code_that_has_the_class_of_its_enum(app: Celery, kit: Kit) -> None:
    module = ModuleType("moved_enums")
    sys.modules[module.__name__] = module
    Colour = Enum("Colour", {"RED": 1}, module="moved_enums", qualname="Colour")  # noqa: N806
    module.Colour = Colour  # type: ignore[attr-defined]

    @app.task(name="same")
    def same(value: Any) -> Any:
        return value

    result = same.delay(Colour.RED)
    del module.Colour
    try:
        kit.run_until_idle()
        job = kit.started("same")[0]
        assert (job.state, job.attempt) == ("pending", 0)
        module.Colour = Colour  # type: ignore[attr-defined]  # its old name, left where it was
        kit.advance("1h")
        kit.run_until_idle()
        assert result.get(timeout=1) is Colour.RED
        del module.Colour
        with pytest.raises(OutputInvalid, match=r"moved_enums:Colour\.RED"):
            result.get(timeout=1)
    finally:
        del sys.modules["moved_enums"]
