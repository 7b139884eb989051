"""Values as pages write them."""

import pytest

from holdfast_dashboard import templates
from holdfast_dashboard.forms import is_local_path
from holdfast_dashboard.page_context import flash_message

NOON = "2026-01-31T12:00:00.000000Z"
LATER = "2026-01-31T12:03:20.500000Z"


def test_instants_are_written_to_the_second_in_utc() -> None:
    assert templates.clock(NOON) == "2026-01-31 12:00:00 UTC"
    assert templates.ms(NOON) == 1769860800000


def test_spans_are_written_in_one_unit_and_never_below_zero() -> None:
    assert templates.between(NOON, LATER) == "3 min"
    assert templates.between(NOON, None) == "–"


def test_sizes_are_written_in_the_unit_that_suits_them() -> None:
    sizes = {0: "0 B", 999: "999 B", 8_192: "8.2 kB", 123_456_789: "123 MB", 10**15: "1000 TB"}
    assert {size: templates.byte_size(size).replace("\u202f", " ") for size in sizes} == sizes


def test_a_command_that_took_only_a_part_says_so() -> None:
    found = flash_message({"done": "redrive", "moved": "1000", "more": "yes"})
    assert found is not None
    assert found.sentence.startswith("1\u202f000 jobs re-queued; more match")
    assert found.tone == "warn"


@pytest.mark.parametrize(
    ("missed", "text"),
    [
        ("none", "skipped"),
        ("last", "the latest missed run is caught up"),
        ("all(5)", "the latest 5 missed runs are caught up"),
    ],
)
def test_what_happens_to_missed_runs_is_described(missed: str, text: str) -> None:
    assert templates.missed_runs(missed) == text


def test_counts_are_grouped_and_long_texts_are_cut() -> None:
    assert templates.count(1234567) == "1\u202f234\u202f567"
    assert templates.first_line("\n Boom: it broke\n  at line 3") == "Boom: it broke"
    assert len(templates.first_line("x" * 10_000)) == templates.MAX_LINE_LENGTH + 1
    assert "cut here" in templates.pretty_json(["x" * templates.MAX_PAYLOAD_LENGTH])


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"state": "running", "worker": "w-7"}, "on w-7"),
        ({"state": "blocked"}, "waiting for other chains"),
        ({"state": "pending", "available_at": NOON, "attempt": 0}, "due for 3 min"),
        ({"state": "failed", "error": "Boom: it broke"}, "Boom: it broke"),
        (
            {"state": "completed", "started_at": NOON, "finished_at": LATER, "continued": True},
            "ran 3 min, continued",
        ),
    ],
)
def test_a_list_says_of_a_job_what_matters_in_its_state(
    fields: dict[str, object], note: str
) -> None:
    assert templates.job_note(fields, templates.instant_of(LATER)) == note


def test_a_retry_is_shown_with_the_time_until_it() -> None:
    job = {"state": "pending", "available_at": LATER, "attempt": 2}
    assert templates.job_note(job, templates.instant_of(NOON)) == "retry in 3 min"


def test_only_known_sentences_numbers_and_names_come_from_an_address() -> None:
    done = flash_message({"done": "retry", "moved": "3", "left": "1"})
    assert done is not None
    assert done.sentence.startswith("3 jobs re-queued; 1 skipped")
    assert done.tone == "warn"
    assert flash_message({"done": "<b>", "moved": "1"}) is None
    odd = flash_message({"done": "cancel", "moved": "9" * 50, "left": "-1"})
    assert odd is not None
    assert odd.sentence == "0 jobs cancelled"
    named = flash_message({"done": "pause", "moved": "1", "subject": "mail.send"})
    assert named is not None
    assert named.sentence == "mail.send paused"
    forged = flash_message({"done": "pause", "moved": "1", "subject": "call 555 1234, you are"})
    assert forged is not None
    assert forged.sentence == "It paused"


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
