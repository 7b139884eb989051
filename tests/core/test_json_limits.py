"""JSON texts: what is refused, exactly, and what only looks like it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import DEPTH_LIMIT, LARGEST_INT, SMALLEST_INT, check_finite, checked_text
from holdfast.core.errors import PayloadNotEncodable, PayloadTooLarge


def _nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * levels + closing * levels).encode()


@pytest.mark.parametrize("backslashes", range(8))
def test_a_nul_is_told_from_the_six_characters_that_look_like_one(backslashes: int) -> None:
    raw = b'"' + b"\\" * backslashes + b'u0000"'
    if backslashes % 2:
        with pytest.raises(PayloadNotEncodable, match="NUL"):
            checked_text(raw)
    else:
        assert checked_text(raw) == raw.decode()


@given(st.text(alphabet='\\u0\x00"a', max_size=12))
def test_exactly_the_strings_with_a_nul_are_refused(text: str) -> None:
    raw = json.dumps(text).encode()
    if "\x00" in text:
        with pytest.raises(PayloadNotEncodable, match="NUL"):
            checked_text(raw)
    else:
        assert checked_text(raw) == raw.decode()


@given(st.integers(-(2**66), 2**66))
def test_exactly_the_integers_of_64_bits_pass(number: int) -> None:
    raw = json.dumps({"n": [1.5, number, True]}).encode()
    if SMALLEST_INT <= number <= LARGEST_INT:
        assert checked_text(raw) == raw.decode()
    else:
        with pytest.raises(PayloadNotEncodable, match="64 bits"):
            checked_text(raw)


@pytest.mark.parametrize("number", [LARGEST_INT, SMALLEST_INT, 2**53 + 1])
def test_the_bounds_themselves_pass(number: int) -> None:
    assert checked_text(str(number).encode()) == str(number)


@pytest.mark.parametrize(
    "raw",
    [
        b'"123456789012345678901234567890"',
        b'"\\"123456789012345678901234567890"',
        b'{"99999999999999999999":1}',
        b"12345678901234567890.5",
        b"1234567890123456789e5",
        b"0.12345678901234567890",
    ],
)
def test_long_digits_that_are_no_integers_pass(raw: bytes) -> None:
    assert checked_text(raw) == raw.decode()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_counted_in_arrays_and_objects_alike(opening: str, closing: str) -> None:
    step = opening.count("[") + opening.count("{")
    deepest = f"{opening * (DEPTH_LIMIT // step)}1{closing * (DEPTH_LIMIT // step)}".encode()
    assert checked_text(deepest) == deepest.decode()
    with pytest.raises(PayloadNotEncodable, match="200 levels"):
        checked_text(b"[" + deepest + b"]")


def test_many_brackets_side_by_side_or_in_strings_are_no_nesting() -> None:
    wide = json.dumps([{"a": ["[" * 300 + '\\"{']} for _ in range(300)]).encode()
    assert checked_text(wide) == wide.decode()


def test_size_is_counted_in_bytes_and_both_numbers_are_named() -> None:
    raw = '"ééé"'.encode()
    assert checked_text(raw, limit=8) == '"ééé"'
    with pytest.raises(PayloadTooLarge, match=r"8 bytes.* 7"):
        checked_text(raw, limit=7)


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("inf")], {"a": {"b": (1, -float("inf"))}}, [[], {"x": [float("nan")]}]],
)
def test_nan_and_infinities_are_found_at_any_depth(value: Any) -> None:
    with pytest.raises(PayloadNotEncodable, match="JSON cannot express"):
        check_finite(value)


def test_finite_values_pass() -> None:
    check_finite({"a": [1.5, None, "nan", True, {"b": (1e308, -0.0)}]})
