"""What each law finds in planted rows: all that breaks it, in order and up to a number, and nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.job_rows import NOW, SECOND, attempt, ended, job, lease, live, step, waits
from tests.support.tables import Planted, Row, id_of

MINUTE = 60 * SECOND


class Evidence(Planted):
    """A database with rows that break laws."""

    @property
    def never(self) -> Any:
        """When a blocked job is due."""
        return "infinity" if self.is_postgres else 2**63 - 1

    def leases(self, *rows: Row) -> None:
        none: Any = [] if self.is_postgres else "[]"
        self.plant("lease", *(row | {"job_ids": none} for row in rows))

    def gate(self, id: str, *holders: int, before: tuple[int, ...] = ()) -> None:
        """A partition that has let these jobs in, and others in the round before."""
        ids = [id_of(each) for each in holders]
        if self.is_postgres:
            turns: list[Row] = [
                {"turn": 0},
                {"turn": 1, "holders": [id_of(each) for each in before]},
                {"turn": 2, "holders": ids},
            ]
            self.plant("gate", *({"id": id} | turn for turn in turns))
        else:
            self.plant("gate", {"id": id, "holders": json.dumps(ids)})

    def worker(self, id: str, rules: Any = None, **values: Any) -> None:
        """A worker of the type `part`, seen until now, whose code limits it so."""
        usual = {
            "id": id, "name": id, "host": "h", "pid": 1, "version": "1", "slots": 1, "types": '["part"]',
            "started_at": NOW, "seen_at": NOW, "live_ms": 1_000, "counters": "{}",
            "limits": json.dumps({"part": rules or {}}),
        }  # fmt: skip
        self.plant("worker", usual | values)

    def setting(self, id: str, allowed: int | None, changed_at: int = 1) -> None:
        row = {"id": id, "allowed": allowed, "changed_at": changed_at}
        self.plant("limit_setting", row)

    def breaches(self, law: str, limit: int = 99) -> list[Any]:
        """What breaks a law: a number instead of an id, and the text."""
        found = self.ask(f"verify_{law}", limit=limit)
        return [
            (int(one[-12:]) if one.startswith("00000000") else one, text) for one, text in found
        ]

    def check(self, law: str, expected: list[Any]) -> None:
        """Compare what breaks a law, all of it and the first."""
        assert self.breaches(law) == expected
        assert self.breaches(law, 1) == expected[:1]


@pytest.fixture(params=["postgres", "sqlite"])
def rows(request: pytest.FixtureRequest) -> Iterator[Evidence]:
    rows = Evidence(request.getfixturevalue(f"{request.param}_url"))
    yield rows
    rows.close()


def test_a_job_is_in_one_state(rows: Evidence) -> None:
    rows.plant("job", *(job(number) for number in (4, 3, 2, 1)))
    rows.plant("queue", live(3), live(2))
    rows.plant("outcome", ended(4), ended(2))
    rows.check(
        "one_state",
        [
            (1, "it is neither in the queue nor has it ended"),
            (2, "it is in the queue although it has ended as completed"),
        ],
    )


def test_every_row_belongs_to_a_job(rows: Evidence) -> None:
    id: dict[int, Row] = {number: {"job_id": id_of(number)} for number in range(10, 21)}
    rows.plant("job", job(20), job(9))
    rows.plant("outcome", ended(20), ended(11))
    rows.plant("queue", live(9), live(10))
    rows.plant("attempt", attempt(20), attempt(12), attempt(12, 1), attempt(10))
    rows.plant("blocker", waits(13, 1))
    rows.plant("step", step(14))
    rows.plant("job_context", {"name": "n", "value": "v", **id[15]})
    output = {"chain_id": id_of(1), "last": 1, "first": 1, "epoch": 1, "data": "[]", "at": NOW}
    rows.plant("output", output | id[16])
    rows.plant("failing", {"attempt": 1, **id[17]})
    rows.plant("revision", {"input": "1", "at": NOW, "quiet_ms": 0, **id[18]})
    rows.plant("progress", {"fence": 1, "fraction": 0.5, "note": "", "at": NOW, **id[19]})
    sources = ["queue", "outcome", "attempt", "blocker", "step", "context", "output", "failing"]
    sources += ["revision", "progress"]
    found = [*enumerate(sources, 10)]
    found.insert(0, (10, "attempt"))
    text = "there is no such job, but a row of"
    rows.check("no_orphans", [(number, f"{text} {source}") for number, source in found])


def test_the_jobs_of_a_chain_are_numbered_without_a_gap(rows: Evidence) -> None:
    chains = {5: (-1, 1), 3: (1, 2), 2: (0, 2), 1: (0, 1)}
    for chain, places in chains.items():
        for place in places:
            number = chain * 10 + place
            rows.plant("job", job(number, chain_id=id_of(chain), chain_index=place))
    rows.check(
        "unbroken_chains",
        [
            (2, "it has 2 jobs, numbered up to 3"),
            (3, "it has 2 jobs, numbered up to 3"),
            (5, "it has 2 jobs, numbered up to 2"),
        ],
    )


def test_a_job_that_continued_is_followed_and_no_other_is(rows: Evidence) -> None:
    follows = {"chain_index": 1}
    for first, second in ((8, 18), (6, 16), (4, 14), (1, 11)):
        rows.plant("job", job(first), job(second, chain_id=id_of(first), **follows))
        rows.plant("queue", live(second))
    rows.plant("job", *(job(number) for number in (10, 5, 3, 2)))
    on: dict[str, Any] = {"continued": True}
    rows.plant("outcome", ended(1, **on), ended(3, **on), ended(4), ended(8, "failed", **on))
    rows.plant("outcome", ended(10, "failed", **on), ended(2))
    rows.plant("queue", live(6), live(5))
    rows.check(
        "linked_chains",
        [
            (3, "it continued its chain, and nothing follows"),
            (4, f"job {id_of(14)} follows, but it ended as completed"),
            (6, f"job {id_of(16)} follows, but it is in the queue"),
            (8, f"job {id_of(18)} follows, but it ended as failed"),
        ],
    )


def test_a_claimed_job_is_held_by_a_lease(rows: Evidence) -> None:
    rows.plant("queue", live(4, 94), live(3), live(2, 92), live(1, 91))
    rows.leases(lease(91))
    text = "its token {} belongs to no lease"
    found = [(2, text.format(id_of(92))), (4, text.format(id_of(94)))]
    rows.check("held_by_a_lease", found)


def test_no_fence_is_beyond_that_of_its_job(rows: Evidence) -> None:
    fences = {1: 5, 2: 5, 4: 8, 5: 4, 7: 5, 8: 5}
    rows.plant("queue", *(live(number, fence=fence) for number, fence in fences.items()))
    rows.plant("outcome", ended(3, fence=3), ended(5, fence=9), ended(6, fence=2))
    rows.plant("attempt", attempt(5, 6), attempt(4, 1), attempt(4, 9), attempt(2, 6))
    rows.plant("attempt", attempt(1, 5), attempt(6, 2))
    rows.plant("step", step(3, fence=7), step(3, "other", fence=1), step(6, fence=2))
    for number, fence in ((7, 6), (8, 5)):
        said = {"fence": fence, "fraction": 0.5, "note": "", "at": NOW}
        rows.plant("progress", {"job_id": id_of(number), **said})
    text = "a row of {} has the fence {}, the job {}"
    rows.check(
        "fences_grow",
        [
            (2, text.format("attempt", 6, 5)),
            (3, text.format("step", 7, 3)),
            (4, text.format("attempt", 9, 8)),
            (5, text.format("attempt", 6, 4)),
            (7, text.format("progress", 6, 5)),
        ],
    )


def test_a_blocked_job_is_blocked_by_something(rows: Evidence) -> None:
    blocked = {"available_at": rows.never}
    for number in (8, 7, 3, 2, 1):
        rows.plant("queue", live(number, **blocked))
    rows.plant("queue", live(4, 94, **blocked), live(5, **blocked, steps=True), live(6))
    rows.plant("blocker", waits(2, 20), waits(3, 20, open=False), waits(9, 20), waits(7, 20))
    text = "it is blocked, but no chain it waits for is open"
    rows.check("blocked_by_something", [(1, text), (3, text), (8, text)])


def test_a_job_that_waits_is_not_claimed_and_not_due(rows: Evidence) -> None:
    blocked = {"available_at": rows.never}
    rows.plant("queue", live(3, 93, **blocked), live(2), live(1, **blocked))
    rows.plant("queue", live(4), live(5), live(6, available_at=None, gate="part#", gate_at=NOW))
    rows.plant("queue", live(7, 97))
    rows.plant("blocker", waits(1, 20), waits(2, 22), waits(2, 21), waits(3, 20))
    rows.plant("blocker", waits(4, 20, step=1), waits(5, 20, open=False), waits(6, 20))
    rows.check(
        "waits_are_kept",
        [
            (2, f"it waits for chain {id_of(21)} and can be claimed"),
            (3, f"it waits for chain {id_of(20)} and is claimed"),
            (6, f"it waits for chain {id_of(20)} and can be claimed"),
        ],
    )


def test_no_job_waits_for_a_chain_that_has_ended(rows: Evidence) -> None:
    rows.plant("queue", *(live(number) for number in (8, 7, 6, 5, 4, 3, 2, 1)))
    rows.plant("job", *(job(number) for number in (11, 12, 13, 14, 17)))
    rows.plant("job", job(37, chain_id=id_of(17), chain_index=1))
    rows.plant("queue", live(11), live(37))
    rows.plant("outcome", ended(12), ended(13, "failed"), ended(14, "failed"), ended(17))
    rows.plant(
        "blocker",
        waits(1, 11, on_failure="fail"),
        waits(2, 12, on_failure="wait"),
        waits(3, 13, on_failure="fail"),
        waits(4, 14, on_failure="wait"),
        waits(5, 15),
        waits(6, 12, open=False),
        waits(7, 17),
        waits(9, 12),
    )
    text = "it waits for chain {}, which has {}"
    rows.check(
        "ends_are_noticed",
        [
            (2, text.format(id_of(12), "ended as completed")),
            (3, text.format(id_of(13), "ended as failed")),
            (5, text.format(id_of(15), "no jobs")),
        ],
    )


def test_the_counts_of_a_type_are_those_of_its_rows(rows: Evidence) -> None:
    def tally(type: str, **counts: int) -> None:
        rows.plant("tally", {"at": NOW, "type": type, **counts})

    tally("right", started=16, completed=1, failed=2, removed=8)
    rows.plant("queue", *(live(number, type="right") for number in range(1, 6)))
    rows.plant("outcome", *(ended(number, "failed", type="right") for number in (6, 7)))
    rows.plant("outcome", ended(8, type="right"))
    tally("e", started=1, cancelled=1)
    tally("d", started=2, completed=1, cancelled=1)
    tally("c", started=1, failed=1)
    tally("b", started=1)
    tally("b", started=1)
    rows.plant("queue", live(9, type="b"))
    rows.plant("queue", live(10, type="a"))
    rows.check(
        "tallies_agree",
        [
            ("a", "the tally says 0 in the queue and the rows 1"),
            ("b", "the tally says 2 in the queue and the rows 1"),
            ("c", "the tally says 1 failed and the rows 0"),
            (
                "d",
                "the tally says 1 completed and the rows 0, the tally says 1 cancelled and the rows 0",
            ),
            ("e", "the tally says 1 cancelled and the rows 0"),
        ],
    )


def test_a_key_that_deduplicates_has_a_chain(rows: Evidence) -> None:
    def key(type: str, name: str, chain: int, **values: Any) -> Row:
        return {"type": type, "key": name, "chain_id": id_of(chain), **values}

    rows.plant("job", job(1))
    rows.plant(
        "chain_key",
        key("u", "a", 9),
        key("t", "b", 9),
        key("t", "a", 9),
        key("t", "c", 1),
        key("t", "d", 9, gone_at=NOW),
        key("used t", "e", 9),
    )
    text = f"it deduplicates for chain {id_of(9)}, which does not exist and was not removed"
    rows.check("keys_have_chains", [("t a", text), ("t b", text), ("u a", text)])


def test_no_reader_is_beyond_the_end_of_its_line(rows: Evidence) -> None:
    for line in range(16):
        rows.head(line, 4 if line == 2 else 0)
    if rows.is_postgres:
        # The log of another schema, which begins where it pleases.
        for text in ("create schema other", "create sequence other.log_line_2"):
            rows.execute(text, "")
    for reader, line, position in (("z", 3, 1), ("a", 2, 5), ("a", 1, 9), ("m", 2, 4), ("m", 1, 0)):
        rows.plant("log_position", {"reader": reader, "line": line, "position": position})
    rows.check(
        "readers_within_the_log",
        [
            ("a", "line 1 ends at 0, and it is at 9"),
            ("a", "line 2 ends at 4, and it is at 5"),
            ("z", "line 3 ends at 0, and it is at 1"),
        ],
    )


# ---- Permits


KEY = {"line": {"allowed": 2}}
"""What a worker says that limits each key."""


def claimed(rows: Evidence, number: int, gate: str | None = "part#a", **values: Any) -> None:
    """A job that is claimed by the worker `worker`, under a lease of its own."""
    rows.plant("job", job(number, cost=values.pop("cost", None)))
    lasts = {"claimed_at": values.pop("claimed_at", NOW), "worker": values.pop("worker", "worker")}
    rows.leases(lease(900 + number, **lasts))
    rows.plant("queue", live(number, 900 + number, gate=gate, **values))


def missed(number: int, partition: str = "part#a") -> tuple[int, str]:
    return number, f"it is claimed, but partition {partition} did not let it in"


def test_a_claimed_job_is_among_those_that_its_partitions_let_in(rows: Evidence) -> None:
    rows.worker("worker", {**KEY, "shared": [{"id": "@all", "allowed": 9}]})
    for number in (3, 2, 1):
        claimed(rows, number)
    claimed(rows, 4, gate=None)
    claimed(rows, 5, gate="part#")
    claimed(rows, 6, type="other")
    claimed(rows, 8, gate="part#")
    rows.plant("job", job(7))
    rows.plant("queue", live(7, gate="part#a"))
    rows.gate("part#a", 1, before=(1, 2))
    rows.gate("part#b", 2, 3)
    rows.gate("part#", 9)
    rows.gate("@all", 1, 2, 5)
    rows.check("permits_are_recorded", [missed(2), missed(3, "@all"), missed(3), missed(8, "@all")])


def test_the_partitions_that_did_not_let_a_job_in_are_named_in_order(rows: Evidence) -> None:
    shared = [{"id": id, "allowed": 9} for id in ("total", "all")]
    rows.worker("worker", {**KEY, "shared": shared})
    claimed(rows, 1)
    rows.check("permits_are_recorded", [missed(1, "all"), missed(1), missed(1, "total")])


def test_what_a_worker_does_not_limit_needs_no_permit(rows: Evidence) -> None:
    costs = {"line": {"cost_allowed": 5}, "shared": [{"id": "@all", "cost_rate": 5}]}
    rows.worker("worker", costs, seen_at=NOW - 2 * SECOND)
    claimed(rows, 1)
    rows.check("permits_are_recorded", [])


@pytest.mark.parametrize(
    ("values", "is_judged"),
    [
        # One that was seen last just before the claim; one that was seen since; one of other types.
        ({"seen_at": NOW - SECOND - 1}, True),
        ({"seen_at": NOW - SECOND}, False),
        ({"types": '["other"]'}, True),
        ({"limits": json.dumps({"part": KEY})}, True),
        ({"limits": json.dumps({"other": KEY})}, False),
        ({"limits": json.dumps({"part": {"line": {"cost_allowed": 2}}})}, False),
        ({"limits": json.dumps({"part": {"shared": [{"id": "@all", "allowed": 2}]}})}, False),
    ],
)
def test_nothing_is_judged_where_another_worker_of_the_type_does_not_know_the_limit(
    rows: Evidence, values: Row, is_judged: bool
) -> None:
    rows.worker("worker", KEY)
    rows.worker("older", **values)
    claimed(rows, 1)
    rows.check("permits_are_recorded", [missed(1)] if is_judged else [])


@pytest.mark.parametrize(
    ("one", "seen_at", "is_judged"),
    [
        ({"id": "@all", "cost_allowed": 3}, NOW - SECOND, False),
        ({"id": "@all", "cost_allowed": 3}, NOW - SECOND - 1, True),
        ({"id": "@all", "allowed": 3}, NOW, True),
        ({"id": "@none", "cost_allowed": 3}, NOW, True),
    ],
)
def test_nothing_is_judged_where_another_type_shares_the_limit_without_its_number(
    rows: Evidence, one: Row, seen_at: int, is_judged: bool
) -> None:
    shared = {"part": {"shared": [{"id": "@all", "allowed": 9}]}}
    rows.worker("worker", shared["part"])
    other = json.dumps({"other": {"shared": [one]}})
    rows.worker("other", types='["other"]', limits=other, seen_at=seen_at)
    claimed(rows, 1)
    rows.check("permits_are_recorded", [missed(1, "@all")] if is_judged else [])


@pytest.mark.parametrize(
    ("worker", "claimed_at", "is_judged"),
    [("gone", NOW, False), ("gone", NOW - 1, True), ("worker", NOW, True)],
)
def test_nothing_is_judged_where_a_worker_claims_that_is_not_on_record_yet(
    rows: Evidence, worker: str, claimed_at: int, is_judged: bool
) -> None:
    rows.worker("worker", KEY)
    claimed(rows, 1)
    rows.leases(lease(800, worker=worker, claimed_at=claimed_at))
    rows.check("permits_are_recorded", [missed(1)] if is_judged else [])


def too_many(partition: str, number: int, allowed: int) -> tuple[str, str]:
    return partition, f"{number} of its jobs are claimed, {allowed} are allowed"


def too_much(partition: str, weight: int, allowed: int) -> tuple[str, str]:
    return partition, f"its claimed jobs cost {weight}, {allowed} is allowed"


def test_no_more_jobs_run_than_a_limit_lets_in(rows: Evidence) -> None:
    shared = [{"id": "@all", "allowed": 5}, {"id": "part", "allowed": 9}]
    rows.worker("worker", {**KEY, "shared": shared})
    for number in range(1, 4):
        claimed(rows, number)
        claimed(rows, number + 10, gate="part#b")
    claimed(rows, 20, gate="part#c")
    # Those of another partition that it holds by mistake, those that have gone on, and those that are not claimed.
    rows.gate("part#b", 11, 12, 13)
    rows.gate("part#a", 1, 2, 3)
    rows.gate("part#c", 20, 1, 2, 31)
    rows.setting("part#c", 2)
    rows.plant("job", job(31))
    rows.plant("queue", live(31, gate="part#c"))
    rows.gate("@all", 1, 2, 3, 11, 12, 13)
    rows.gate("part", 1, 2, 3, 11, 12, 13, 20)
    rows.check(
        "limits_hold", [too_many("@all", 6, 5), too_many("part#a", 3, 2), too_many("part#b", 3, 2)]
    )


def test_what_jobs_cost_counts_up_to_the_least_number_of_their_type(rows: Evidence) -> None:
    shared = [{"id": "@all", "cost_allowed": 20, "cost_rate": 8}, {"id": "@rate", "cost_rate": 30}]
    rows.worker("worker", {"line": {"cost_allowed": 10}, "shared": shared})
    # 8 of it, 1, and 3.
    claimed(rows, 1, cost=99)
    claimed(rows, 2)
    claimed(rows, 3, cost=3)
    claimed(rows, 4, gate="part#b", cost=9)
    claimed(rows, 5, gate="part#b", cost=2)
    rows.gate("part#a", 1, 2, 3)
    rows.gate("part#b", 4, 5)
    rows.gate("@all", 1, 2, 3, 4, 5)
    rows.gate("@rate", 1, 2, 3, 4, 5)
    rows.check("limits_hold", [too_much("@all", 22, 20), too_much("part#a", 12, 10)])


@pytest.mark.parametrize(
    ("rules", "weight"),
    [
        ({"line": {"cost_allowed": 10, "cost_rate": 4}}, 12),
        ({"line": {"cost_allowed": 5, "cost_rate": 9}}, 15),
        ({"line": {"cost_allowed": 10}, "shared": [{"id": "@rate", "cost_rate": 4}]}, 12),
    ],
)
def test_a_job_counts_as_the_least_number_that_it_is_bound_by(
    rows: Evidence, rules: dict[str, Any], weight: int
) -> None:
    rows.worker("worker", rules)
    for number in (1, 2, 3):
        claimed(rows, number, cost=9)
    rows.gate("part#a", 1, 2, 3)
    rows.check("limits_hold", [too_much("part#a", weight, rules["line"]["cost_allowed"])])


def test_what_a_worker_let_in_that_knows_no_costs_counts(rows: Evidence) -> None:
    rows.worker("worker", {"line": {"rate": 1}})
    rows.worker("newer", {"line": {"cost_allowed": 5}})
    claimed(rows, 1, cost=4)
    claimed(rows, 2, cost=3, worker="newer", claimed_at=NOW + 1)
    rows.gate("part#a", 1, 2)
    rows.check("limits_hold", [too_much("part#a", 7, 5)])


def test_jobs_that_say_no_cost_count_one_each(rows: Evidence) -> None:
    rows.worker("worker", {"line": {"allowed": 2, "cost_allowed": 1}})
    claimed(rows, 1)
    claimed(rows, 2)
    rows.gate("part#a", 1, 2)
    rows.check("limits_hold", [too_much("part#a", 2, 1)])


def test_numbers_of_other_types_and_of_keys_are_not_those_of_a_type(rows: Evidence) -> None:
    rows.worker("worker", limits=json.dumps({"part": KEY, "other": KEY}))
    for number in (1, 2):
        claimed(rows, number)
    for number in (3, 4, 5):
        claimed(rows, number, gate="part#")
    rows.gate("part#a", 1, 2)
    rows.gate("part#", 3, 4, 5)
    rows.check("limits_hold", [])


def test_the_last_that_was_let_in_says_what_is_allowed(rows: Evidence) -> None:
    rows.worker("worker", {"line": {"allowed": 1, "cost_allowed": 1}})
    rows.worker("newer", {"line": {"allowed": 2, "cost_allowed": 9}})
    claimed(rows, 1, cost=4)
    claimed(rows, 2, cost=5, worker="newer", claimed_at=NOW + 1)
    rows.gate("part#a", 1, 2)
    rows.check("limits_hold", [])
    claimed(rows, 3, cost=4, claimed_at=NOW + 2)
    rows.execute("delete from holdfast.gate", "delete from holdfast_gate")
    rows.gate("part#a", 1, 2, 3)
    rows.check("limits_hold", [too_many("part#a", 3, 1)])


def test_one_that_costs_nothing_is_let_in_where_nothing_is_left(rows: Evidence) -> None:
    rows.worker("worker", {"line": {"cost_allowed": 1}})
    rows.worker("newer", {"line": {"cost_allowed": 9}})
    claimed(rows, 1, cost=4, worker="newer")
    claimed(rows, 2, cost=0, claimed_at=NOW + 2)
    rows.gate("part#a", 1, 2)
    rows.check("limits_hold", [])
    claimed(rows, 3, cost=4, claimed_at=NOW + 3)
    rows.execute("delete from holdfast.gate", "delete from holdfast_gate")
    rows.gate("part#a", 1, 2, 3)
    rows.check("limits_hold", [too_much("part#a", 5, 1)])


@pytest.mark.parametrize(("allowed", "other"), [(1, 2), (2, 1), (1, None), (None, 1)])
def test_of_those_let_in_at_once_the_most_generous_number_counts(
    rows: Evidence, allowed: int | None, other: int | None
) -> None:
    for name, number in (("worker", allowed), ("other", other)):
        line = {} if number is None else {"allowed": number, "cost_allowed": number}
        rows.worker(name, {"line": line | {"rate": 1}})
    claimed(rows, 1)
    claimed(rows, 2, worker="other")
    rows.gate("part#a", 1, 2)
    rows.check("limits_hold", [])


def test_of_those_let_in_at_once_each_number_is_the_most_generous(rows: Evidence) -> None:
    rows.worker("worker", {"line": {"allowed": 2, "cost_allowed": 1}})
    rows.worker("other", {"line": {"allowed": 1, "cost_allowed": 2}})
    claimed(rows, 1)
    claimed(rows, 2, worker="other")
    rows.gate("part#a", 1, 2)
    rows.check("limits_hold", [])


@pytest.mark.parametrize(
    ("id", "allowed", "changed_at", "found"),
    [
        ("part#a", 2, 1, [too_many("part#a", 3, 2)]),
        ("part#a", 3, 1, []),
        ("*part", 3, 1, []),
        ("*part", 2, 1, [too_many("part#a", 3, 2)]),
        ("*other", 9, 1, [too_many("part#a", 3, 1)]),
        ("part#b", 9, 1, [too_many("part#a", 3, 1)]),
        ("part#a", None, 1, [too_many("part#a", 3, 1)]),
        # A change a minute before the last was let in, or later: more may run than are allowed now.
        ("part#a", 2, NOW - MINUTE - 1, [too_many("part#a", 3, 2)]),
        ("part#a", 2, NOW - MINUTE, []),
        ("*part", 2, NOW - MINUTE - 1, [too_many("part#a", 3, 2)]),
        ("*part", 2, NOW - MINUTE, []),
    ],
)
def test_what_was_set_at_run_time_counts(
    rows: Evidence, id: str, allowed: int | None, changed_at: int, found: list[Any]
) -> None:
    rows.worker("worker", {"line": {"allowed": 1}})
    for number in range(1, 4):
        claimed(rows, number)
    rows.gate("part#a", 1, 2, 3)
    rows.setting(id, allowed, changed_at)
    rows.check("limits_hold", found)


def test_a_number_for_each_key_is_none_for_a_type_or_a_shared_limit(rows: Evidence) -> None:
    rows.worker("worker", {"shared": [{"id": "@all", "allowed": 1}, {"id": "part#", "allowed": 1}]})
    for number in (1, 2):
        claimed(rows, number, gate="part#")
    rows.setting("*part", 9)
    rows.gate("@all", 1, 2)
    rows.gate("part#", 1, 2)
    rows.check("limits_hold", [too_many("@all", 2, 1), too_many("part#", 2, 1)])


@pytest.mark.parametrize(
    ("action", "at", "is_judged"),
    [
        ("limit.set", NOW - MINUTE, False),
        ("limit.set", NOW - MINUTE - 1, True),
        ("job.cancel", NOW, True),
    ],
)
def test_nothing_is_said_after_a_limit_was_set(
    rows: Evidence, action: str, at: int, is_judged: bool
) -> None:
    rows.worker("worker", {"line": {"allowed": 1}})
    claimed(rows, 1)
    claimed(rows, 2)
    rows.gate("part#a", 1, 2)
    who = {"id": id_of(1), "actor": "ana", "role": "operator", "target": "part#a"}
    rows.plant("audit", {**who, "at": at, "action": action})
    rows.check("limits_hold", [too_many("part#a", 2, 1)] if is_judged else [])
