"""Values as pages write them."""

import pytest

from holdfast.web.pages import template_filters
from holdfast.web.pages.flash import told
from holdfast.web.pages.forms import is_local_path

NOON = "2026-01-31T12:00:00.000000Z"
LATER = "2026-01-31T12:03:20.500000Z"


def test_instants_are_written_to_the_second_in_utc() -> None:
    assert template_filters.clock(NOON) == "2026-01-31 12:00:00 UTC"
    assert template_filters.ms(NOON) == 1769860800000


def test_spans_are_written_in_one_unit_and_never_below_zero() -> None:
    assert template_filters.between(NOON, LATER) == "3 min"
    assert template_filters.between(NOON, None) == "–"


def test_sizes_are_written_in_the_unit_that_suits_them() -> None:
    sizes = {0: "0 B", 999: "999 B", 8_192: "8.2 kB", 123_456_789: "123 MB", 10**15: "1000 TB"}
    assert {size: template_filters.bulk(size).replace("\u202f", " ") for size in sizes} == sizes


def test_a_command_that_took_only_a_part_says_so() -> None:
    found = told({"done": "redrive", "moved": "1000", "more": "yes"})
    assert found is not None
    assert found.sentence.startswith("1\u202f000 taken back into the queue; there are more")
    assert found.tone == "warn"


@pytest.mark.parametrize(
    ("missed", "told"),
    [
        ("none", "are left out"),
        ("last", "the last is made up for"),
        ("all(5)", "the last 5 are made up for"),
    ],
)
def test_what_becomes_of_missed_slots_is_told_in_words(missed: str, told: str) -> None:
    assert template_filters.caught_up(missed) == told


def test_counts_are_grouped_and_long_texts_are_cut() -> None:
    assert template_filters.count(1234567) == "1\u202f234\u202f567"
    assert template_filters.first_line("\n Boom: it broke\n  at line 3") == "Boom: it broke"
    assert len(template_filters.first_line("x" * 10_000)) == template_filters.LONGEST_LINE + 1
    assert "cut here" in template_filters.pretty(["x" * template_filters.LONGEST_PAYLOAD])


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"state": "running", "worker": "w-7"}, "on w-7"),
        ({"state": "blocked"}, "waits for other chains"),
        ({"state": "pending", "available_at": NOON, "attempt": 0}, "due since 3 min"),
        ({"state": "failed", "error": "Boom: it broke"}, "Boom: it broke"),
        (
            {"state": "completed", "started_at": NOON, "finished_at": LATER, "continued": True},
            "ran 3 min, went on",
        ),
    ],
)
def test_a_list_says_of_a_job_what_matters_in_its_state(
    fields: dict[str, object], note: str
) -> None:
    assert template_filters.note(fields, template_filters.instant_of(LATER)) == note


def test_a_retry_is_told_by_the_time_until_it() -> None:
    job = {"state": "pending", "available_at": LATER, "attempt": 2}
    assert template_filters.note(job, template_filters.instant_of(NOON)) == "retry in 3 min"


def test_only_known_deeds_and_numbers_are_told_from_an_address() -> None:
    done = told({"done": "retry", "moved": "3", "left": "1"})
    assert done is not None
    assert done.sentence.startswith("3 taken back into the queue; 1 left alone")
    assert done.tone == "warn"
    assert told({"done": "<b>", "moved": "1"}) is None
    odd = told({"done": "cancel", "moved": "9" * 50, "left": "-1"})
    assert odd is not None
    assert odd.sentence == "0 cancelled"


@pytest.mark.parametrize(
    ("path", "is_local"),
    [
        ("/jobs?filter=state%3Afailed", True),
        ("/", True),
        ("//evil.example", False),
        ("/\\evil.example", False),
        ("https://evil.example", False),
        ("/a\nb", False),
        ("", False),
    ],
)
def test_answers_lead_to_local_paths_only(path: str, is_local: bool) -> None:
    assert is_local_path(path) is is_local
