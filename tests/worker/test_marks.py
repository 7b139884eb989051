"""Low-water marks: where a look begins, and when it begins at the start again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob
from holdfast.worker.marks import LATEST_S, PEEKED, SOONEST_S, START, URGENT, Marks, TypeLook

NOW = 1_000.0
FULL, PARTIAL = TypeLook(True, 200), TypeLook(False, 200)


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
    made.looked({"mail": FULL}, [found(5), found(7)], short=True, at=NOW, cost=0.001)
    return made


def test_the_first_look_begins_at_the_start_of_every_priority() -> None:
    is_full, probes = Marks().look("mail", NOW)
    assert is_full
    assert probes == [(priority, *START) for priority in PRIORITIES]


def test_the_next_look_begins_behind_the_last_find(marks: Marks) -> None:
    assert marks.look("mail", NOW) == (False, [(DEFAULT_PRIORITY, 7, "job-7")])


def test_a_look_that_finds_nothing_moves_no_mark(marks: Marks) -> None:
    marks.looked({"mail": PARTIAL}, [], short=True, at=NOW, cost=0.001)
    assert marks.look("mail", NOW) == (False, [(DEFAULT_PRIORITY, 7, "job-7")])


def test_a_priority_once_found_is_looked_at_again(marks: Marks) -> None:
    marks.looked({"mail": PARTIAL}, [found(9, priority=2)], short=True, at=NOW, cost=0.001)
    assert marks.look("mail", NOW)[1] == [
        (2, 9, "job-9"),
        (DEFAULT_PRIORITY, 7, "job-7"),
    ]


@pytest.mark.parametrize(("worst", "seen"), [(5, [5]), (2, [2, 3, 4, 5]), (7, [5, 6, 7])])
def test_after_a_cut_off_look_what_it_may_have_left_is_probed_down_to_the_default(
    worst: int, seen: list[int]
) -> None:
    marks = marks_of(2 * PEEKED)
    marks.looked(dict.fromkeys(names(2 * PEEKED), FULL), [found(5, worst, "type-0")], False, NOW, 0)
    (quiet,) = [name for name in ("type-2", "type-3") if not peeks(marks, name)]
    assert [priority for priority, *_ in marks.look(quiet, NOW)[1]] == seen


def test_types_take_turns_to_be_looked_at_for_urgent_jobs_while_looks_come_back_full() -> None:
    count = 3 * PEEKED - 1
    marks = marks_of(count)
    peeked: list[set[str]] = []
    for _ in range(3):
        full = dict.fromkeys(names(count), PARTIAL if peeked else FULL)
        marks.looked(full, [found(5, type="type-0")], short=False, at=NOW, cost=0)
        peeked.append({name for name in names(count) if peeks(marks, name)})
    assert [len(each) <= PEEKED for each in peeked] == [True] * 3
    assert set.union(*peeked) == set(names(count))


def test_a_few_types_are_always_looked_at_for_urgent_jobs() -> None:
    marks = marks_of(PEEKED)
    marks.looked(dict.fromkeys(names(PEEKED), FULL), [found(5, type="type-0")], False, NOW, 0)
    assert all(peeks(marks, name) for name in names(PEEKED))


def test_what_a_cut_off_look_has_left_is_looked_for_as_soon_as_a_look_comes_back_short(
    marks: Marks,
) -> None:
    marks.looked({"mail": FULL}, [found(5)], short=False, at=NOW, cost=0.001)
    marks.looked({"mail": PARTIAL}, [found(7)], short=False, at=NOW, cost=0.001)
    assert not marks.wants_full(["mail"])
    marks.looked({"mail": PARTIAL}, [], short=True, at=NOW, cost=0.001)
    assert marks.wants_full(["mail"])
    marks.looked({"mail": FULL}, [found(9, priority=9)], short=True, at=NOW, cost=0.001)
    assert not marks.wants_full(["mail"])


def test_of_a_type_that_filled_its_own_room_every_priority_is_looked_at(marks: Marks) -> None:
    marks.looked({"mail": TypeLook(True, 2)}, [found(5), found(7)], True, NOW, 0.001)
    _, probes = marks.look("mail", NOW)
    assert [priority for priority, *_ in probes] == list(PRIORITIES)
    marks.looked({"mail": TypeLook(False, 1)}, [found(9)], True, NOW, 0.001)
    assert not marks.wants_full(["mail"])


@given(
    lines=st.dictionaries(
        st.tuples(st.integers(0, 20), st.sampled_from(PRIORITIES)), st.integers(1, 12), max_size=40
    ),
    limit=st.integers(1, 15),
)
def test_whatever_waits_is_found_in_order_of_its_priority_and_without_a_pause(
    lines: dict[tuple[int, int], int], limit: int
) -> None:
    waiting = [
        found(place * 50 + number + 1, priority, f"type-{number}")
        for (number, priority), count in lines.items()
        for place in range(count)
    ]
    waiting.sort(key=lambda job: (job.priority, job.available_at))
    marks = Marks()
    while waiting:
        looks = {name: marks.look(name, NOW) for name in names(21)}
        probed = {
            (name, priority): after
            for name, (_, look) in looks.items()
            for priority, after, _ in look
        }
        visible = [
            job
            for job in waiting
            if job.available_at > probed.get((job.type, job.priority), job.available_at)
        ]
        seen, expected = chosen(visible, limit), chosen(waiting, limit)
        assert seen == expected[: len(seen)]
        waiting = [job for job in waiting if job not in seen]
        types = {
            name: TypeLook(is_full, min(limit, most(name))) for name, (is_full, _) in looks.items()
        }
        marks.looked(types, seen, len(seen) < limit, NOW, 0)
        assert len(seen) == len(expected) or marks.wants_full(names(21))


def most(name: str) -> int:
    """How many jobs of a type are taken at once: of some only two."""
    return 2 if name.endswith(("0", "3")) else 100


def chosen(waiting: list[ClaimedJob], limit: int) -> list[ClaimedJob]:
    """What a claim takes of what it sees."""
    taken: list[ClaimedJob] = []
    for job in waiting:
        if len(taken) < limit and sum(each.type == job.type for each in taken) < most(job.type):
            taken.append(job)
    return taken


def names(count: int) -> list[str]:
    """The names of so many types."""
    return [f"type-{number}" for number in range(count)]


def marks_of(count: int) -> Marks:
    """Marks of so many types that were not looked at yet."""
    made = Marks()
    for name in names(count):
        made.look(name, NOW)
    return made


def peeks(marks: Marks, name: str) -> bool:
    """Whether a type's next look is for urgent jobs that are not known yet."""
    return {*URGENT} <= {priority for priority, *_ in marks.look(name, NOW)[1]}


@pytest.mark.parametrize(
    ("cost", "pause"), [(0.0, SOONEST_S), (0.05, 1.0), (10.0, LATEST_S)], ids=str
)
def test_full_looks_keep_a_distance_that_follows_their_cost(
    marks: Marks, cost: float, pause: float
) -> None:
    marks.looked({"mail": FULL}, [found(5)], short=True, at=NOW, cost=cost)
    assert not marks.look("mail", NOW + pause * 0.99)[0]
    assert marks.look("mail", NOW + pause)[0]


def test_whoever_asks_gets_a_full_look_at_once(marks: Marks) -> None:
    marks.look("other", NOW)
    marks.looked({"other": FULL}, [], short=True, at=NOW, cost=0.001)
    marks.want_full("mail")
    assert marks.look("mail", NOW)[0]
    assert not marks.look("other", NOW)[0]
    marks.want_full()
    assert marks.look("other", NOW)[0]
