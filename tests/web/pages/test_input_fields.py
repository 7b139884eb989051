"""A form is made from the schema of an input, and read back as that input."""

import dataclasses
import enum
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from holdfast.core.codec import TypeCodec
from holdfast.core.errors import InputInvalid
from holdfast.core.redaction import MASK
from holdfast_dashboard.input_fields import (
    InputField,
    field_texts,
    input_fields,
    read_fields,
    read_json_input,
)


class Size(enum.Enum):
    S = "s"
    L = "l"


@dataclasses.dataclass
class Order:
    number: int
    price: float
    name: str
    size: Size
    gift: bool = False
    note: str | None = None
    lines: list[dict[str, int]] = dataclasses.field(default_factory=list)


class Typed(TypedDict):
    number: int
    note: NotRequired[str]


class Struct(msgspec.Struct):
    number: int
    note: str = ""


class Model(pydantic.BaseModel):
    number: int
    note: str = pydantic.Field("", description="what to print")


def fields_of(type_: Any) -> list[InputField]:
    """The fields of a type's input."""
    found = input_fields(TypeCodec(type_).schema())
    assert found is not None
    return found


def test_each_property_has_the_field_that_suits_it() -> None:
    kinds = {each.name: (each.kind, each.required) for each in fields_of(Order)}
    assert kinds == {
        "number": ("integer", True),
        "price": ("number", True),
        "name": ("text", True),
        "size": ("choice", True),
        "gift": ("choice", False),
        "note": ("text", False),
        "lines": ("json", False),
    }


@pytest.mark.parametrize("type_", [Typed, Struct, Model])
def test_every_kind_of_class_has_a_form(type_: Any) -> None:
    fields = fields_of(type_)
    assert {each.name for each in fields} == {"number", "note"}
    value = read_fields(fields, {"number": "7", "note": "hm"}, {})
    assert msgspec.json.decode(TypeCodec(type_).encode(value)) == {"number": 7, "note": "hm"}


@pytest.mark.parametrize("type_", [Any, int, dict[str, int], list[int], Literal["a", "b"]])
def test_what_has_no_properties_is_written_as_json(type_: Any) -> None:
    assert input_fields(TypeCodec(type_).schema()) is None


def test_a_filled_form_is_read_as_the_input() -> None:
    texts = {
        "number": " 7 ",
        "price": "1.5",
        "name": " a ",
        "size": "l",
        "gift": "true",
        "note": "",
        "lines": '[{"a": 1}]',
    }
    assert read_fields(fields_of(Order), texts, {}) == {
        "number": 7,
        "price": 1.5,
        "name": " a ",
        "size": "l",
        "gift": True,
        "lines": [{"a": 1}],
    }


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("number", "1.5", "not a whole number"),
        ("number", "", "a value is missing"),
        ("price", "much", "not number"),
        ("size", "xl", "not a choice"),
        ("lines", "[", "not JSON"),
        ("note", MASK, "where no secret was masked"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(name: str, text: str, says: str) -> None:
    texts = {"number": "7", "price": "1", "name": "a", "size": "s", name: text}
    with pytest.raises(InputInvalid, match=says) as caught:
        read_fields(fields_of(Order), texts, {})
    assert caught.value.path == f"$.{name}"


def test_what_is_not_edited_stays_exactly_as_it_was() -> None:
    before = {"number": 7, "price": 1, "name": "", "size": "s", "note": None, "unknown": [1]}
    fields = fields_of(Order)
    texts = field_texts(fields, before)
    assert read_fields(fields, texts, before) == before
    edited = read_fields(fields, texts | {"name": "b\r\nc"}, before)
    assert edited == before | {"name": "b\nc"}


def test_masks_stand_for_the_secrets_they_hide() -> None:
    before = {"user": {"password": "hush", "name": "ana"}, "list": [{"token": "t-1"}, 2]}
    shown = '{"user":{"password":"•••","name":"bob"},"list":[{"token":"•••"},3,4]}'
    assert read_json_input(shown, before) == {
        "user": {"password": "hush", "name": "bob"},
        "list": [{"token": "t-1"}, 3, 4],
    }
    with pytest.raises(InputInvalid, match="where no secret was masked"):
        read_json_input('{"user":{"name":"•••"}}', before)


def test_no_secret_passes_to_another_item_of_a_list() -> None:
    logins = [{"user": name, "password": f"{name}'s"} for name in ("ana", "bob", "eve")]
    ana, bob, eve = ({"user": each["user"], "password": MASK} for each in logins)
    read = partial(read_logins, logins)
    assert read([bob, eve]) == logins[1:]
    assert read([eve, ana, bob]) == [logins[2], *logins[:2]]
    new = {"user": "new", "password": "new's"}
    assert read([new, ana, bob, eve]) == [new, *logins]
    assert read([ana, bob | {"user": "rob"}, eve]) == [
        logins[0],
        {"user": "rob", "password": "bob's"},
        logins[2],
    ]
    with pytest.raises(InputInvalid, match="where no secret was masked"):
        read([bob | {"user": "rob"}, eve])
    alike = [{"password": "a"}, {"password": "b"}]
    with pytest.raises(InputInvalid, match="where no secret was masked"):
        read_logins(alike, [{"password": MASK}])


def read_logins(before: list[Any], edited: list[Any]) -> Any:
    text = msgspec.json.encode({"logins": edited}).decode()
    return read_json_input(text, {"logins": before})["logins"]
