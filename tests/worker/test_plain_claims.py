"""Claim cursors: what a claim probes, where each probe begins, and when it scans from the start again."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.records import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob
from holdfast.worker.plain_claims import (
    FULL_SCAN_MAX_S,
    FULL_SCAN_MIN_S,
    PEEKED_TYPES,
    PROBES_A_PRIORITY,
    SHARING_PROBES,
    SLACK,
    START,
    URGENT,
    ClaimCursors,
    PlannedProbe,
    ProbePlan,
)

NOW = 1_000.0
LIMIT = 200


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


def names(count: int) -> list[str]:
    """The names of so many types."""
    return [f"type-{number}" for number in range(count)]


def make_plan(
    cursors: ClaimCursors, types: Iterable[str] = ("mail",), limit: int = LIMIT, now: float = NOW
) -> ProbePlan:
    """A plan for types that have room for a whole claim."""
    return cursors.plan(types, lambda _: limit, limit, now)


def probed(plan: ProbePlan) -> list[tuple[str, int | None]]:
    """The types and priorities of a plan."""
    return [(each.type, each.priority) for each in plan.probes]


@pytest.fixture
def cursors() -> ClaimCursors:
    """Cursors of a type that was scanned once from the start, and came back short."""
    made = ClaimCursors()
    made.advance(make_plan(made), [found(5), found(7)], is_cut=False, at=NOW, cost=0.001)
    return made


def drained(count: int, limit: int = 50) -> ClaimCursors:
    """Cursors of so many types in the middle of a backlog in all of them."""
    made = ClaimCursors()
    first = make_plan(made, names(count), limit)
    jobs = [found(5, type="type-0")] * limit
    made.advance(first, jobs, is_cut=True, at=NOW, cost=0)
    return made


def test_the_first_claim_begins_at_the_start_of_every_priority() -> None:
    plan = make_plan(ClaimCursors())
    assert plan.is_full_scan
    assert plan.is_whole
    assert plan.probes == [PlannedProbe("mail", None, *START, LIMIT, LIMIT)]


def test_the_next_claim_begins_behind_the_last_find(cursors: ClaimCursors) -> None:
    plan = make_plan(cursors)
    assert not plan.is_full_scan
    assert plan.probes == [PlannedProbe("mail", DEFAULT_PRIORITY, 7, "job-7", LIMIT, LIMIT)]


def test_a_claim_that_finds_nothing_moves_no_cursor(cursors: ClaimCursors) -> None:
    before = make_plan(cursors)
    cursors.advance(before, [], is_cut=False, at=NOW, cost=0.001)
    assert make_plan(cursors) == before


def test_claims_begin_behind_what_is_left_to_newer_workers_and_scan_it_less_often(
    cursors: ClaimCursors,
) -> None:
    due = cursors.full_scan_due("mail") - NOW
    cursors.pass_over([("mail", 5, 6, "job-6"), ("mail", 2, 9, "job-9")])
    assert cursors.full_scan_due("mail") - NOW == SLACK * due
    cursors.pass_over([("mail", 5, 8, "job-8")])
    assert [each.after for each in make_plan(cursors).probes] == [8]
    cursors.request_full_scan()
    cursors.advance(make_plan(cursors), [], is_cut=False, at=NOW, cost=0.001)
    assert cursors.full_scan_due("mail") - NOW == due


def test_a_priority_once_found_is_probed_again(cursors: ClaimCursors) -> None:
    cursors.advance(make_plan(cursors), [found(9, priority=2)], is_cut=False, at=NOW, cost=0.001)
    assert {(each.priority, each.after) for each in make_plan(cursors).probes} == {(2, 9), (5, 7)}


@pytest.mark.parametrize(("worst", "seen"), [(5, [5]), (2, [2, 3, 4, 5]), (7, [5, 6, 7])])
def test_after_a_cut_claim_what_it_may_have_left_is_probed_down_to_the_default(
    worst: int, seen: list[int]
) -> None:
    cursors, types = ClaimCursors(), names(3 * PEEKED_TYPES)
    cursors.advance(make_plan(cursors, types), [found(5, worst, "type-0")], True, NOW, 0)
    plan = probed(make_plan(cursors, types))
    quiet = [name for name in types if (name, 0) not in plan]
    assert quiet
    for name in quiet:
        assert sorted(each for type, each in plan if type == name and each is not None) == seen


def test_types_take_turns_to_be_peeked_at_for_urgent_jobs_while_claims_come_back_cut() -> None:
    count = 3 * PEEKED_TYPES - 1
    cursors = drained(count)
    peeked: list[set[str]] = []
    for _ in range(3):
        plan = make_plan(cursors, names(count))
        peeked.append({name for name, priority in probed(plan) if priority in URGENT})
        cursors.advance(plan, [found(5, type="type-0")] * LIMIT, is_cut=True, at=NOW, cost=0)
    assert [len(each) for each in peeked] == [PEEKED_TYPES] * 3
    assert set.union(*peeked) == set(names(count))


def test_a_type_that_a_hint_names_is_peeked_at_for_urgent_jobs_first() -> None:
    cursors = drained(20)
    cursors.hint("type-17")
    assert {("type-17", priority) for priority in URGENT} <= set(
        probed(make_plan(cursors, names(20)))
    )


def test_what_a_cut_claim_has_left_is_probed_as_soon_as_a_claim_comes_back_short(
    cursors: ClaimCursors,
) -> None:
    cursors.request_full_scan("mail")
    cursors.advance(make_plan(cursors), [found(5)], is_cut=True, at=NOW, cost=0.001)
    cursors.advance(make_plan(cursors), [found(7)], is_cut=True, at=NOW, cost=0.001)
    assert not cursors.needs_full_scan(["mail"])
    cursors.advance(make_plan(cursors), [], is_cut=False, at=NOW, cost=0.001)
    cursors.advance(make_plan(cursors), [], is_cut=False, at=NOW, cost=0.001)
    assert cursors.needs_full_scan(["mail"])
    cursors.advance(make_plan(cursors), [found(9, priority=9)], is_cut=False, at=NOW, cost=0.001)
    assert not cursors.needs_full_scan(["mail"])


def test_of_a_type_that_filled_its_own_room_every_priority_is_probed() -> None:
    cursors = ClaimCursors()
    plan = cursors.plan(["mail"], lambda _: 2, LIMIT, NOW)
    cursors.advance(plan, [found(5), found(7)], False, NOW, 0.001)
    assert {priority for _, priority in probed(make_plan(cursors))} == {*PRIORITIES}


@pytest.mark.parametrize("count", [20, 200, 1000])
def test_a_claim_in_a_backlog_makes_a_handful_of_probes_however_many_types_there_are(
    count: int,
) -> None:
    cursors = drained(count)
    assert len(
        make_plan(cursors, names(count)).probes
    ) <= 2 * PROBES_A_PRIORITY + PEEKED_TYPES * len(URGENT)


@pytest.mark.parametrize(("types", "share"), [(1, 48), (2, 24), (8, 6), (200, 6)])
def test_productive_types_share_a_claim(types: int, share: int) -> None:
    plan = make_plan(ClaimCursors(), names(types), limit=48)
    assert {each.share for each in plan.probes} == {share}
    assert types < SHARING_PROBES or share * SHARING_PROBES == 48


def test_a_type_of_which_nothing_is_expected_may_fill_a_claim() -> None:
    cursors = ClaimCursors()
    cursors.advance(make_plan(cursors, names(3)), [found(5, type="type-0")], False, NOW, 0)
    shares = {each.type: each.share for each in make_plan(cursors, names(3)).probes}
    assert shares == dict.fromkeys(names(3), LIMIT)
    cursors.hint("type-1")
    shares = {each.type: each.share for each in make_plan(cursors, names(3)).probes}
    assert shares == {"type-0": LIMIT // 2, "type-1": LIMIT // 2, "type-2": LIMIT}


@settings(deadline=None, max_examples=50)
@given(
    queued=st.dictionaries(
        st.tuples(st.integers(0, 40), st.sampled_from(PRIORITIES)), st.integers(1, 12), max_size=60
    ),
    limit=st.integers(1, 15),
)
def test_whatever_waits_is_found_in_order_of_its_priority_and_without_a_pause(
    queued: dict[tuple[int, int], int], limit: int
) -> None:
    waiting = [
        found(place * 50 + number + 1, priority, f"type-{number}")
        for (number, priority), count in queued.items()
        for place in range(count)
    ]
    cursors, types, looks = ClaimCursors(), names(41), 0
    while waiting:
        asked = cursors.plan(types, lambda name: min(limit, most(name)), limit, NOW)
        seen = claimed(asked, waiting)
        best = strictly(waiting, limit)
        urgencies = [job.priority for job in seen]
        assert urgencies == [job.priority for job in best][: len(seen)]
        waiting = [job for job in waiting if job not in seen]
        is_cut = len(seen) >= limit
        cursors.advance(asked, seen, is_cut, NOW, 0)
        found_all = len(seen) == len(best)
        assert found_all or not asked.is_whole or cursors.needs_full_scan(types)
        looks = 0 if seen else looks + 1
        assert looks < 3


@settings(deadline=None, max_examples=50)
@given(counts=st.lists(st.integers(1, 60), min_size=2, max_size=40), limit=st.integers(5, 50))
def test_no_type_waits_until_another_has_nothing_left(counts: list[int], limit: int) -> None:
    waiting = [
        found(place * 50 + number + 1, type=f"type-{number}")
        for number, count in enumerate(counts)
        for place in range(count)
    ]
    cursors, types, waits = ClaimCursors(), names(len(counts)), dict.fromkeys(names(len(counts)), 0)
    while waiting:
        asked = make_plan(cursors, types, limit)
        seen = claimed(asked, waiting)
        cursors.advance(asked, seen, len(seen) >= limit, NOW, 0)
        waiting = [job for job in waiting if job not in seen]
        served = {job.type for job in seen}
        for name in {job.type for job in waiting}:
            waits[name] = 0 if name in served else waits[name] + 1
            assert waits[name] <= len(counts)


def most(name: str) -> int:
    """How many jobs of a type are taken at once: of some only two."""
    return 2 if name.endswith(("0", "3")) else 100


def strictly(waiting: Sequence[ClaimedJob], limit: int) -> list[ClaimedJob]:
    """The most urgent jobs that fit into a claim."""
    taken: list[ClaimedJob] = []
    for job in sorted(waiting, key=lambda job: job.priority):
        if len(taken) < limit and sum(each.type == job.type for each in taken) < most(job.type):
            taken.append(job)
    return taken


def claimed(plan: ProbePlan, waiting: Sequence[ClaimedJob]) -> list[ClaimedJob]:
    """What a claim takes: probe by probe, shares first, until there are enough."""
    turns = [
        (priority, again, place, probe)
        for place, probe in enumerate(plan.probes)
        for priority in (PRIORITIES if probe.priority is None else [probe.priority])
        for again in (False, True)
    ]
    lying: dict[tuple[str, int], list[ClaimedJob]] = {}
    for job in sorted(waiting, key=lambda job: job.available_at):
        lying.setdefault((job.type, job.priority), []).append(job)
    taken: list[ClaimedJob] = []
    for priority, again, _, probe in sorted(turns, key=lambda turn: turn[:3]):
        jobs = lying.get((probe.type, priority), [])
        behind = [job for job in jobs if job.available_at > probe.after]
        for job in behind[probe.share : probe.room] if again else behind[: probe.share]:
            counted = sum(each.type == job.type for each in taken)
            if len(taken) < plan.limit and counted < probe.room:
                taken.append(job)
    return sorted(taken, key=lambda job: (job.priority, job.available_at))


@pytest.mark.parametrize(
    ("cost", "pause"), [(0.0, FULL_SCAN_MIN_S), (0.05, 1.0), (10.0, FULL_SCAN_MAX_S)], ids=str
)
def test_full_scans_keep_a_distance_that_follows_their_cost(
    cursors: ClaimCursors, cost: float, pause: float
) -> None:
    cursors.request_full_scan("mail")
    cursors.advance(make_plan(cursors), [found(5)], is_cut=False, at=NOW, cost=cost)
    assert not make_plan(cursors, now=NOW + pause * 0.99).is_full_scan
    assert make_plan(cursors, now=NOW + pause).is_full_scan


def test_a_requested_full_scan_comes_at_once(cursors: ClaimCursors) -> None:
    cursors.advance(make_plan(cursors, ["other"]), [], is_cut=False, at=NOW, cost=0.001)
    cursors.request_full_scan("mail")
    both = make_plan(cursors, ["mail", "other"])
    assert both.fully_scanned == {"mail"}
    cursors.request_full_scan()
    assert make_plan(cursors, ["mail", "other"]).is_full_scan
