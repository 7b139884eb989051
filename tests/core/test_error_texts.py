"""Error texts: bounded, printable, without secrets, and grouped by what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redaction import clean_error, fingerprint, printable, shorten

_ANY_TEXT = st.text(st.characters(exclude_categories=[])) | st.text(
    "a\x00\ud800é😀'\"", min_size=50
)


def test_type_message_and_stack_are_put_together() -> None:
    assert clean_error("ValueError", "no", "Traceback …") == "ValueError: no\nTraceback …"
    assert clean_error("KeyError", "") == "KeyError"


@given(_ANY_TEXT, _ANY_TEXT, _ANY_TEXT, st.integers(-1, 200))
def test_any_error_is_cleaned_within_the_limit(
    type_name: str, message: str, stack: str, limit: int
) -> None:
    cleaned = clean_error(type_name, message, stack, limit)
    assert len(cleaned.encode()) <= max(limit, 0)
    assert "\x00" not in cleaned


def test_nul_surrogates_and_escape_codes_are_replaced() -> None:
    assert printable("a\x00b\ud800c\x1b[31md\r\n\te") == "a�b�c�[31md\n\te"


def test_secrets_are_redacted() -> None:
    assert "hunter2" not in clean_error("E", "password=hunter2", "dsn='postgres://a:hunter2@h/d'")


def test_a_secret_across_the_cut_does_not_leave_its_end() -> None:
    text = "x" * 90 + " password=" + "s3cret" * 500
    assert "s3cret" not in clean_error("E", text, limit=200)


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    cleaned = clean_error("E", "head " + "x" * 20_000, "y" * 20_000 + " tail")
    assert cleaned.startswith("E: head x")
    assert "… (cut) …" in cleaned
    assert cleaned.endswith("y tail")
    assert len(cleaned.encode()) <= 8_192


def test_a_cut_never_splits_a_character() -> None:
    for limit in range(60):
        short = shorten("é😀" * 50, limit)
        assert len(short.encode()) <= limit
        assert not set(short) - set("é😀\n… (cut)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 4711 not found"),
        ("took 1.5 s", "took 0.25 s"),
        (
            "job 0193a6f0-7c00-7000-8000-000000000000 lost",
            "job 9b2f3c64-18a1-4f10-9c59-8ad7b64e3c11 lost",
        ),
        ("object at 0x7f3a2b lost", "object at 0xdeadbeef lost"),
        ("commit 9fceb02d0ae5 is bad", "commit 1234567890ab is bad"),
        ("can't open 'a.txt'", "can't open 'b.txt'"),
        ('no column "x" here', 'no column "other one" here'),
        ("failed  twice\nDETAIL: a", "failed twice\nDETAIL: b"),
    ],
)
def test_errors_that_differ_only_in_details_share_a_fingerprint(one: str, other: str) -> None:
    assert fingerprint("ValueError", one) == fingerprint("ValueError", other)


def test_different_errors_have_different_fingerprints() -> None:
    assert fingerprint("ValueError", "no order") != fingerprint("KeyError", "no order")
    assert fingerprint("ValueError", "no order") != fingerprint("ValueError", "no customer")


def test_fingerprints_are_short_and_never_change() -> None:
    assert fingerprint("TimeoutError", "timed out after 30 s") == "b9469820b00f9630"


@given(_ANY_TEXT, _ANY_TEXT)
def test_any_error_has_a_fingerprint(type_name: str, message: str) -> None:
    assert len(fingerprint(type_name, message)) == 16
