"""Low-water marks: where a look begins, and when it begins at the start again."""

import pytest

from holdfast.core.model import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob
from holdfast.worker.marks import LATEST_S, SOONEST_S, START, Marks

NOW = 1_000.0


def found(available_at: int, priority: int = DEFAULT_PRIORITY, type: str = "mail") -> ClaimedJob:
    """A job as a claim returns it."""
    return ClaimedJob(
        id=f"job-{available_at}",
        token="token",
        type=type,
        priority=priority,
        available_at=available_at,
        attempt=1,
        max_attempts=None,
        crashes=0,
        fence=1,
        chain_id="chain",
        chain_index=0,
        input="null",
        blockers=0,
        trace=None,
        key=None,
        created_at=0,
        claimed_at=0,
    )


@pytest.fixture
def marks() -> Marks:
    """Marks of a type that was looked at once, from the start, and found short."""
    made = Marks()
    made.look("mail", NOW)
    made.looked({"mail": True}, [found(5), found(7)], short=True, at=NOW, cost=0.001)
    return made


def test_the_first_look_begins_at_the_start_of_every_priority() -> None:
    is_full, probes = Marks().look("mail", NOW)
    assert is_full
    assert probes == [(priority, *START) for priority in PRIORITIES]


def test_the_next_look_begins_behind_the_last_find(marks: Marks) -> None:
    assert marks.look("mail", NOW) == (False, [(DEFAULT_PRIORITY, 7, "job-7")])


def test_a_look_that_finds_nothing_moves_no_mark(marks: Marks) -> None:
    marks.looked({"mail": False}, [], short=True, at=NOW, cost=0.001)
    assert marks.look("mail", NOW) == (False, [(DEFAULT_PRIORITY, 7, "job-7")])


def test_a_priority_once_found_is_looked_at_again(marks: Marks) -> None:
    marks.looked({"mail": False}, [found(9, priority=2)], short=True, at=NOW, cost=0.001)
    assert marks.look("mail", NOW)[1] == [
        (2, 9, "job-9"),
        (DEFAULT_PRIORITY, 7, "job-7"),
    ]


def test_a_full_look_that_was_cut_off_leaves_every_priority_to_be_seen(marks: Marks) -> None:
    marks.looked({"mail": True}, [found(5)], short=False, at=NOW, cost=0.001)
    _, probes = marks.look("mail", NOW)
    assert [priority for priority, *_ in probes] == list(PRIORITIES)


@pytest.mark.parametrize(
    ("cost", "pause"), [(0.0, SOONEST_S), (0.05, 1.0), (10.0, LATEST_S)], ids=str
)
def test_full_looks_keep_a_distance_that_follows_their_cost(
    marks: Marks, cost: float, pause: float
) -> None:
    marks.looked({"mail": True}, [found(5)], short=True, at=NOW, cost=cost)
    assert not marks.look("mail", NOW + pause * 0.99)[0]
    assert marks.look("mail", NOW + pause)[0]


def test_whoever_asks_gets_a_full_look_at_once(marks: Marks) -> None:
    marks.look("other", NOW)
    marks.looked({"other": True}, [], short=True, at=NOW, cost=0.001)
    marks.want_full("mail")
    assert marks.look("mail", NOW)[0]
    assert not marks.look("other", NOW)[0]
    marks.want_full()
    assert marks.look("other", NOW)[0]
