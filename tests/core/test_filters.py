"""Filters: every kind of term, exact round trips, and errors that name what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import FilterError
from holdfast.core.filters import LARGEST_NUMBER, Term, format_filter, parse_filter
from holdfast.core.records import STATES

ID = "0193a6f0-7c00-7abc-8def-0000000000aa"


def test_the_documented_example_is_read() -> None:
    text = f'state:failed type:mail.* age>5m attempt>=3 error:"timed out" chain:{ID}'
    assert parse_filter(text) == (
        Term("state", ":", ("failed",)),
        Term("type", ":", ("mail.*",)),
        Term("age", ">", (300_000,)),
        Term("attempt", ">=", (3,)),
        Term("error", ":", ("timed out",)),
        Term("chain", ":", (ID,)),
    )


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("   ", ()),
        ("state:failed,cancelled", (Term("state", ":", ("failed", "cancelled")),)),
        ('error:"a, b",c', (Term("error", ":", ("a, b", "c")),)),
        (r'error:"say \"no\" \\ twice"', (Term("error", ":", ('say "no" \\ twice',)),)),
        ("key:charge:42", (Term("key", ":", ("charge:42",)),)),
        (f"id:{ID.upper()}", (Term("id", ":", (ID,)),)),
        ("attempt:3", (Term("attempt", ":", (3,)),)),
        ("age<1h30m", (Term("age", "<", (5_400_000,)),)),
        (" age>=1h\tage<=2h ", (Term("age", ">=", (3_600_000,)), Term("age", "<=", (7_200_000,)))),
        ("error:größe", (Term("error", ":", ("größe",)),)),
        ("timeout", (Term("text", ":", ("timeout",)),)),
        ('card "timed out"', (Term("text", ":", ("card",)), Term("text", ":", ("timed out",)))),
        (
            '"charge:7" state:failed',
            (Term("text", ":", ("charge:7",)), Term("state", ":", ("failed",))),
        ),
        ("text:timeout", (Term("text", ":", ("timeout",)),)),
    ],
)
def test_terms_are_read(text: str, terms: tuple[Term, ...]) -> None:
    assert parse_filter(text) == terms


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("stat:failed", "did you mean state?"),
        ("States:failed", "did you mean state?"),
        ("atempt>3", "did you mean attempt?"),
        ("xyzzy:1", "use one of state, type"),
        ("state:faild", "did you mean failed?"),
        ("state:processing", "did you mean running?"),
        ("state:claimed", "did you mean running? The states are blocked, pending, running, "),
        ("state:x", "The states are blocked"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(text: str, help: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert any(part in caught.value.help for part in help.split("|"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (":failed", "not a term"),
        ("<b>", "not a term"),
        ('"open', "not a term"),
        ('""', "empty"),
        ("a,b,", "missing"),
        ("state:", "missing"),
        ("state: failed", "missing"),
        ("state:failed,", "missing"),
        ("state:failed, cancelled", "missing"),
        ('error:"open', "missing"),
        ('error:""', "empty"),
        ('error:"a"b', "is unexpected"),
        ('error:a"b"', "is unexpected"),
        ("state>failed", "cannot be combined"),
        ("age:5m", "cannot be combined"),
        ("age>soon", "not a duration"),
        ("age>1m,2m", "one value only"),
        ("attempt>=many", "whole number"),
        ("attempt:-1", "whole number"),
        (f"attempt:{LARGEST_NUMBER + 1}", "whole number"),
        ("id:42", "not an id"),
        ("error:a\x00b", "control character"),
        ("error:\ud800", "control character"),
        ("error:" + "x" * 1000, "the limit is 1000"),
        ("attempt:1 " * 21, "the limit is 20"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=says) as caught:
        parse_filter(text)
    assert caught.value.help


def test_a_value_that_the_shell_took_apart_is_named_by_its_term() -> None:
    with pytest.raises(FilterError, match=r"missing after '500:' ") as caught:
        parse_filter("state:failed fingerprint:HTTPError HTTP Error 500:")
    assert "'error:\"HTTP Error 500\"'" in caught.value.help


@pytest.mark.parametrize("text", ["0193a6f0-7c0x", "state:failed mail", '"timed out"'])
def test_a_command_takes_no_word_without_a_key(text: str) -> None:
    with pytest.raises(FilterError, match="not a term") as caught:
        parse_filter(text, words=False)
    assert "or quote" not in caught.value.help
    assert parse_filter("text:mail", words=False) == (Term("text", ":", ("mail",)),)


_TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('",\\* :<>\t\n'),
    min_size=1,
    max_size=20,
)
_TERMS = st.one_of(
    st.builds(
        lambda values: Term("state", ":", tuple(values)),
        st.lists(st.sampled_from(STATES), min_size=1, max_size=3),
    ),
    st.builds(
        lambda field, values: Term(field, ":", tuple(values)),
        st.sampled_from(["type", "error", "key", "text"]),
        st.lists(_TEXTS, min_size=1, max_size=2),
    ),
    st.builds(
        lambda field, operator, value: Term(field, operator, (value,)),
        st.sampled_from(["age", "attempt"]),
        st.sampled_from([">", ">=", "<", "<="]),
        st.integers(0, LARGEST_NUMBER),
    ),
    st.just(Term("chain", ":", (ID,))),
)


@given(st.lists(_TERMS, max_size=5))
def test_a_written_filter_reads_back_as_the_same_terms(terms: list[Term]) -> None:
    assert parse_filter(format_filter(terms)) == tuple(terms)


@given(st.text() | st.text('stae:fild,">=<1m\\ ', max_size=40))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        terms = parse_filter(text)
    except FilterError:
        return
    assert parse_filter(format_filter(terms)) == terms
