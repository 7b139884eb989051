"""Hints as text: compact, within the limits of every server, tolerant of what others send."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidIdentifier
from holdfast.notify.base import Hint
from holdfast.notify.encoding import PAYLOAD_LIMIT, PAYLOADS_LIMIT, channel_name, decode, encode

hints = st.builds(
    Hint,
    st.sampled_from(("due", "look", "lost", "ended", "awaited", "signal")),
    st.text(st.characters(), max_size=40),
    st.text(max_size=20),
    st.lists(st.text(min_size=1, max_size=36), max_size=60).map(tuple),
)


def decoded(payloads: list[str]) -> list[Hint]:
    return [hint for payload in payloads for hint in decode(payload)]


def test_a_hint_is_compact() -> None:
    assert encode([Hint("due", "mail")]) == ['[{"k":"due","t":"mail"}]']
    assert encode([]) == []


@given(st.lists(hints, max_size=20))
def test_what_is_encoded_is_read_again_with_every_id(sent: list[Hint]) -> None:
    read = decoded(encode(sent))
    assert {(hint.kind, hint.type, hint.worker) for hint in read} == {
        (hint.kind, hint.type, hint.worker) for hint in sent
    }
    assert {id for hint in read for id in hint.ids} == {id for hint in sent for id in hint.ids}


@given(st.lists(hints, max_size=300))
def test_no_payload_is_larger_than_postgresql_accepts(sent: list[Hint]) -> None:
    payloads = encode(sent)
    assert all(len(payload.encode()) <= PAYLOAD_LIMIT for payload in payloads)
    assert len(payloads) <= PAYLOADS_LIMIT


def test_many_ids_become_several_hints() -> None:
    ids = tuple(str(number) for number in range(120))
    read = decoded(encode([Hint("lost", worker="w-1", ids=ids)]))
    assert [len(hint.ids) for hint in read] == [50, 50, 20]
    assert {hint.worker for hint in read} == {"w-1"}


def test_a_name_too_long_for_a_payload_becomes_a_wider_hint() -> None:
    assert decoded(encode([Hint("look", "x" * 8_000)])) == [Hint("look", "*")]


def test_too_many_payloads_become_wider_hints() -> None:
    sent = [Hint("due", f"{number:04}" + "x" * 1_000) for number in range(500)]
    sent.append(Hint("ended", ids=tuple("y" * 36 for _ in range(100))))
    assert decoded(encode(sent)) == [Hint("due", "*"), Hint("ended")]


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "null",
        "7",
        "{}",
        "[",
        "[" * 100_000,
        '"due"',
        '[{"k":"due","t":7}]',
        "[[]]",
        '[{"t":"x"}]',
    ],
)
def test_what_is_not_a_hint_is_passed_over(payload: str) -> None:
    assert decode(payload) == ()


def test_unknown_fields_and_kinds_of_a_newer_sender_are_passed_over() -> None:
    items = [{"k": "due", "t": "mail", "colour": "red"}, {"k": "resized", "t": "mail"}]
    assert decode(json.dumps(items)) == (Hint("due", "mail"),)


def test_a_channel_is_named_after_its_schema() -> None:
    assert channel_name("acme_jobs") == "acme_jobs_hint"
    with pytest.raises(InvalidIdentifier):
        channel_name("Acme Jobs")
