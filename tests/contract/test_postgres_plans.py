"""The hot statements stay cheap beside a large backlog, with generic and with custom plans."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import psycopg
import pytest
from psycopg import Connection

from holdfast.core.instants import Instant
from holdfast.core.records import Claim, Finish, FinishKind, LeaseClass, NewJob, Probe
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.jobs import JobStore
from holdfast.storage.store.leases import LeaseStore
from holdfast.storage.store.pagination import JobQuery
from tests.contract.backlog import NOW, PER_LEASE, ROWS, RUNNING, TYPES, UNHANDLED, sweep
from tests.contract.buffers import Cost, PlanMode, measure
from tests.contract.conftest import POSTGRES

# A table of a hundred leases may be read twice: with plain settings a scan of it is cheaper than its index.
FIXED, PER_ROW = 30, 10
# Before version 17 a scan for a list of keys goes down the index once per key.
PER_ROW_BEFORE_17 = 16

TOKEN = "019c0000-0000-7000-8000-000000000000"
OTHER_TOKEN = "019c0000-0000-7000-8000-000000000001"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
# Behind the running jobs, which are the oldest due ones.
MARK: tuple[Instant, str] = (NOW - (ROWS - 10 * RUNNING) * 10_000, FIRST_ID)
EXPIRED = NOW + 61_000_000


@pytest.fixture(scope="module", params=POSTGRES)
def filled(request: pytest.FixtureRequest) -> Iterator[Connection[Any]]:
    """A connection with a caller's plain settings to a database with a large backlog."""
    url: str = request.getfixturevalue(f"{request.param}_backlog")
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def backlog(filled: Connection[Any]) -> Connection[Any]:
    """The same, as if no other test had been there."""
    sweep(filled)
    return filled


@pytest.fixture(params=get_args(PlanMode))
def mode(request: pytest.FixtureRequest) -> PlanMode:
    """Both ways of planning."""
    mode: PlanMode = request.param
    return mode


@pytest.fixture(params=["job_claim_queues", "job_claim"])
def leases(request: pytest.FixtureRequest) -> tuple[LeaseClass, ...]:
    """As many kinds of leases as either statement is for."""
    kinds = 1 if request.param == "job_claim_queues" else 2
    return tuple(
        LeaseClass(token, 60_000, 25, 1_000, 5_000) for token in (TOKEN, OTHER_TOKEN)[:kinds]
    )


def claim(
    leases: tuple[LeaseClass, ...], *types: str, limit: int = 50, share: int | None = None
) -> Statement:
    probes = tuple(Probe(type, 5, TOKEN, limit, *MARK, share=share) for type in types)
    statement = only(JobStore().claim(Claim("worker", limit, probes, leases), NOW))
    assert statement.name == ("job_claim_queues" if len(leases) == 1 else "job_claim")
    return statement


def only(op: Op[Any]) -> Statement:
    """The statement of an operation that has one."""
    return next(op)


def held_jobs(connection: Connection[Any], count: int) -> Sequence[tuple[str, str]]:
    query = "select job_id::text, token::text from holdfast.queue where token is not null order by 1 limit %s"
    return connection.execute(query, [count]).fetchall()


def finish(connection: Connection[Any], count: int, kind: FinishKind) -> Statement:
    finishes = [
        Finish(job_id, token, kind, "worker", job_id, output='{"ok": true}', error="Boom: no")
        for job_id, token in held_jobs(connection, count)
    ]
    if kind == "continue":
        for number, each in enumerate(finishes):
            successor = f"019d0000-0000-7000-8000-{number:012x}"
            each.next = NewJob(successor, each.id, "mail", "{}", chain_index=1)
    return only(JobStore().finish(finishes, now=NOW))


def assert_cheap(connection: Connection[Any], cost: Cost, rows: int, written: int = 0) -> None:
    """`written` counts the rows that the statement adds to other tables for each one it returns."""
    assert cost.rows == rows
    assert_bounded(connection, cost, rows, written)


def assert_bounded(connection: Connection[Any], cost: Cost, rows: int, written: int = 0) -> None:
    """The statement looked at no more than what it had to do with so many rows, and was not compiled."""
    assert "JIT:" not in cost.plan
    per_row = PER_ROW if connection.info.server_version >= 170_000 else PER_ROW_BEFORE_17
    assert cost.blocks <= FIXED + per_row * rows * (1 + written), cost.plan


@pytest.mark.parametrize("limit", [1, 50, 200])
def test_a_claim_costs_what_it_takes(
    backlog: Connection[Any], mode: PlanMode, leases: tuple[LeaseClass, ...], limit: int
) -> None:
    assert_cheap(backlog, measure(backlog, claim(leases, "mail", limit=limit), mode), limit)


def test_a_claim_of_several_types_costs_what_it_takes(
    backlog: Connection[Any], mode: PlanMode, leases: tuple[LeaseClass, ...]
) -> None:
    cost = measure(backlog, claim(leases, *TYPES, limit=48, share=12), mode)
    assert_cheap(backlog, cost, 48)


def test_a_line_gives_no_more_than_a_claim_needs(
    backlog: Connection[Any], mode: PlanMode, leases: tuple[LeaseClass, ...]
) -> None:
    one = measure(backlog, claim(leases, TYPES[0], limit=48), mode)
    all = measure(backlog, claim(leases, *TYPES, limit=48), mode)
    assert all.blocks <= one.blocks + FIXED, all.plan


def test_types_without_jobs_cost_a_look_no_more_than_one_step_each(
    backlog: Connection[Any], mode: PlanMode
) -> None:
    names = [f"nobody's-{number}" for number in range(200)]
    probes = tuple(Probe(name, None, TOKEN, 50, 0, FIRST_ID, share=7) for name in names)
    lease = LeaseClass(TOKEN, 60_000, 25, 1_000, 5_000)
    cost = measure(
        backlog, only(JobStore().claim(Claim("worker", 50, probes, (lease,)), NOW)), mode
    )
    assert cost.rows == 0
    assert cost.blocks <= FIXED + 4 * len(names), cost.plan


def test_a_claim_that_finds_nothing_costs_next_to_nothing(
    backlog: Connection[Any], mode: PlanMode, leases: tuple[LeaseClass, ...]
) -> None:
    types = [f"nobody's-{number}" for number in range(4)]
    assert_cheap(backlog, measure(backlog, claim(leases, *types), mode), 0)


@pytest.mark.parametrize("count", [1, 50, 200])
def test_a_flush_of_completions_costs_what_it_ends(
    backlog: Connection[Any], mode: PlanMode, count: int
) -> None:
    cost = measure(backlog, finish(backlog, count, "complete"), mode)
    # Completions are answered by type, not one by one.
    assert 1 <= cost.rows <= len(TYPES)
    assert_bounded(backlog, cost, count)


@pytest.mark.parametrize(
    ("kind", "written"), [("continue", 2), ("fail", 1), ("retry", 1), ("snooze", 1), ("release", 0)]
)
def test_a_flush_of_another_kind_costs_what_it_writes(
    backlog: Connection[Any], mode: PlanMode, kind: FinishKind, written: int
) -> None:
    cost = measure(backlog, finish(backlog, 50, kind), mode)
    assert_cheap(backlog, cost, 50, written)


def test_a_refused_flush_costs_next_to_nothing(backlog: Connection[Any], mode: PlanMode) -> None:
    ((job_id, _),) = held_jobs(backlog, 1)
    stale = Finish(job_id, TOKEN, "complete", "worker", job_id)
    assert_cheap(backlog, measure(backlog, only(JobStore().finish([stale], now=NOW)), mode), 0)


@pytest.mark.parametrize("count", [1, 10])
def test_a_renewal_costs_its_leases_however_many_jobs_they_hold(
    backlog: Connection[Any], mode: PlanMode, count: int
) -> None:
    tokens = sorted({token for _, token in held_jobs(backlog, RUNNING)})[:count]
    assert_cheap(backlog, measure(backlog, only(LeaseStore().renew(tokens, NOW)), mode), count)


@pytest.mark.parametrize(("worker", "rows"), [("worker-3", 100), ("nobody", 0)])
def test_reading_what_a_worker_holds_costs_what_it_holds(
    backlog: Connection[Any], mode: PlanMode, worker: str, rows: int
) -> None:
    assert_cheap(backlog, measure(backlog, only(LeaseStore().held(worker)), mode), rows)


def test_a_reaper_that_finds_nothing_costs_next_to_nothing(
    backlog: Connection[Any], mode: PlanMode
) -> None:
    assert_cheap(backlog, measure(backlog, only(LeaseStore().reap(100, 3, now=NOW)), mode), 0)


@pytest.mark.parametrize("leases", [1, 10, 100])
def test_a_reaper_costs_what_it_takes_back(
    backlog: Connection[Any], mode: PlanMode, leases: int
) -> None:
    cost = measure(backlog, only(LeaseStore().reap(leases, 3, now=EXPIRED)), mode)
    assert_cheap(backlog, cost, leases * (1 + PER_LEASE), written=1)


@pytest.mark.parametrize("type", ["mail", UNHANDLED, "nobody's"])
def test_the_next_due_time_costs_next_to_nothing(
    backlog: Connection[Any], mode: PlanMode, type: str
) -> None:
    assert_cheap(backlog, measure(backlog, only(JobStore().next_due([type], 1_000, NOW)), mode), 1)


@pytest.mark.parametrize("limit", [50, 250])
@pytest.mark.parametrize(
    "name", ["job_walk", "job_walk_live", "job_walk_not_completed", "chain_walk"]
)
def test_a_step_of_a_list_costs_what_it_gives(
    backlog: Connection[Any], mode: PlanMode, name: str, limit: int
) -> None:
    cost = measure(backlog, Statement(name, {"before": TOKEN, "limit": limit}), mode)
    assert cost.rows == limit
    assert cost.blocks <= FIXED + PER_ROW * limit, cost.plan


def test_what_is_blocked_is_listed_without_reading_what_is_due(
    backlog: Connection[Any], mode: PlanMode
) -> None:
    cost = measure(backlog, Statement("job_walk_blocked", {"before": None, "limit": 50}), mode)
    lines = len(TYPES) + 1
    assert cost.rows == 50
    assert cost.blocks <= lines * (FIXED + PER_ROW * 50), cost.plan


def test_what_runs_is_listed_from_the_leases(backlog: Connection[Any], mode: PlanMode) -> None:
    cost = measure(backlog, Statement("job_walk_running", {"before": None, "limit": 50}), mode)
    assert_cheap(backlog, cost, 50)


def test_those_that_fit_are_read_by_their_ids(backlog: Connection[Any], mode: PlanMode) -> None:
    rows = backlog.execute("select id::text from holdfast.job order by id desc limit 250")
    query = JobQuery(ids=tuple(row[0] for row in rows.fetchall()), limit=250)
    cost = measure(backlog, Statement("job_list", {**query.params(), "now": NOW}), mode)
    assert_cheap(backlog, cost, 250, written=1)


def test_retention_walks_along_what_failed(backlog: Connection[Any], mode: PlanMode) -> None:
    asked: dict[str, Value] = {"after": FIRST_ID, "until": TOKEN, "limit": 50}
    cost = measure(backlog, Statement("retention_dead_page", asked), mode)
    assert cost.rows == 50
    assert cost.blocks <= FIXED + 2 * PER_ROW * 50, cost.plan


def test_retention_walks_along_the_key(backlog: Connection[Any], mode: PlanMode) -> None:
    asked: dict[str, Value] = {"after": FIRST_ID, "until": TOKEN, "limit": 250}
    cost = measure(backlog, Statement("retention_page", asked), mode)
    assert cost.rows == 250
    assert cost.blocks <= FIXED + PER_ROW * 250, cost.plan
