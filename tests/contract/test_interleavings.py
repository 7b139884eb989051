"""Every pair of operations on one chain, in many orders of their statements: nothing is lost, stuck or doubled."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from itertools import product
from typing import Any, Self

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from holdfast.commands.attempts import finish_attempts, reap_leases
from holdfast.commands.chains import cancel_chain, delete_chains, end_chain, retry_chain
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import ChainNotFound, StillReferenced, WrongState
from holdfast.core.records import (
    Claim,
    ClaimedJob,
    Finish,
    FinishKind,
    LeaseClass,
    NewBlocker,
    NewJob,
    Probe,
)
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.store import Store
from tests.contract.interleaving import Orders, interleave
from tests.contract.tables import PostgresTables

# The first steps decide the order of locks; `make lasting` goes deeper.
STEPS = int(os.environ.get("HOLDFAST_INTERLEAVING_STEPS", "4"))
FAR = 4_000_000_000_000_000
EXPECTED = (ChainNotFound, WrongState, StillReferenced)


class Scene:
    """One running chain `a`, and a job `d` of another chain that waits for it unless an operation attaches it."""

    def __init__(self, store: Store, attached: bool) -> None:
        self.store = store
        self.type = new_id()
        self.chain = new_id()
        self.dependent = new_id()
        self.attached = attached
        self.claimed: ClaimedJob | None = None

    def prepare(self, database: PostgresDatabase) -> None:
        """Start `a`, attach `d`, claim `a`."""
        first = NewJob(id=self.chain, chain_id=self.chain, type=self.type, input="1")
        database.run(start_chains(self.store, [StartRequest(first)]))
        if self.attached:
            database.run(self.attach())
        self.claimed = database.run(self.claim())[0]

    def claim(self) -> Op[list[ClaimedJob]]:
        token = new_id()
        nil = "00000000-0000-0000-0000-000000000000"
        return self.store.jobs.claim(
            Claim(
                "w",
                5,
                (Probe(self.type, 5, token, 5, 0, nil),),
                (LeaseClass(token, 60_000, 3, 10, 10),),
            )
        )

    def attach(self) -> Op[Any]:
        waiting = NewJob(
            id=self.dependent, chain_id=self.dependent, type=self.type + "d", input="2", blockers=1
        )
        edge = NewBlocker(self.dependent, 0, self.chain)
        return start_chains(self.store, [StartRequest(waiting, blockers=(edge,))])

    def successor(self) -> NewJob:
        return NewJob(id=new_id(), chain_id=self.chain, chain_index=1, type=self.type, input="3")

    def finish(self, kind: FinishKind) -> Op[Any]:
        assert self.claimed is not None
        successor = self.successor() if kind == "continue" else None
        finish = Finish(
            id=self.claimed.id,
            token=self.claimed.token,
            kind=kind,
            worker="w",
            chain_id=self.chain,
            output="4",
            error="boom" if kind in ("fail", "retry") else None,
            next=successor,
        )
        return finish_attempts(self.store, [finish])


MOVES: dict[str, Callable[[Scene], Op[Any]]] = {
    "complete": lambda scene: scene.finish("complete"),
    "continue": lambda scene: scene.finish("continue"),
    "fail": lambda scene: scene.finish("fail"),
    "retry": lambda scene: scene.finish("retry"),
    "release": lambda scene: scene.finish("release"),
    "claim": lambda scene: scene.claim(),
    "reap": lambda scene: reap_leases(scene.store, 10, 3, None, FAR),
    "cancel": lambda scene: cancel_chain(scene.store, scene.chain),
    "complete_outside": lambda scene: end_chain(scene.store, scene.chain, "completed", output="5"),
    "continue_outside": lambda scene: end_chain(
        scene.store, scene.chain, "completed", next=scene.successor()
    ),
    "delete": lambda scene: delete_chains(scene.store, [scene.chain]),
    "delete_below": lambda scene: delete_chains(scene.store, [scene.dependent], cascade=True),
    "redrive": lambda scene: retry_chain(scene.store, scene.chain),
    "attach": lambda scene: scene.attach(),
}


class Sessions:
    """Connections that pairs of operations take in turn: their plans are made once."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self.database = PostgresDatabase(self._url)
        self.tables = PostgresTables(self._url)
        self.watcher = await AsyncConnection.connect(
            self._url, autocommit=True, row_factory=dict_row
        )
        self.plain, *self.pair = [
            await AsyncConnection.connect(self._url, autocommit=True) for _ in range(3)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in (self.watcher, self.plain, *self.pair):
            await connection.close()
        self.tables.close()
        self.database.close()


@pytest.fixture
async def sessions(postgres_url: str) -> AsyncIterator[Sessions]:
    """Connections to a database of the test's own."""
    async with Sessions(postgres_url) as sessions:
        yield sessions


@pytest.mark.parametrize("first", sorted(MOVES))
async def test_two_operations_keep_the_laws_in_every_order(sessions: Sessions, first: str) -> None:
    for second in sorted(MOVES):
        if second >= first and (first, second) != ("attach", "attach"):
            sessions.tables.clear()
            attached = "attach" not in (first, second)
            what = f"{first} and {second}"
            await try_every_order(sessions, MOVES[first], MOVES[second], attached, STEPS, what)


async def test_a_retry_of_a_chain_that_is_being_deleted_finds_no_chain(sessions: Sessions) -> None:
    scene = Scene(sessions.database.store, attached=True)
    scene.prepare(sessions.database)
    ops = [MOVES["delete_below"](scene), MOVES["redrive"](scene)]
    # The deletion has its locks by then, and the retry sees the chain until it commits.
    order = (0,) * 6
    results = await interleave(sessions.pair, "holdfast", ops, order, sessions.plain, Orders())
    assert [type(each.error) for each in results if each.error is not None] == [ChainNotFound]


async def try_every_order(
    sessions: Sessions,
    first: Callable[[Scene], Op[Any]],
    second: Callable[[Scene], Op[Any]],
    attached: bool,
    steps: int,
    what: str,
    failed: bool = False,
) -> None:
    """Run both on a fresh scene in each order of their first steps, and check the laws after each.

    In a `failed` scene the chain has failed before; a job may then wait for its redrive, but not for nothing.
    """
    database = sessions.database
    orders = Orders()
    for schedule in product((0, 1), repeat=steps):
        if orders.include(schedule):
            continue
        scene = Scene(database.store, attached)
        scene.prepare(database)
        if failed:
            database.run(scene.finish("fail"))
        ops = [first(scene), second(scene)]
        results = await interleave(sessions.pair, "holdfast", ops, schedule, sessions.plain, orders)
        errors = [each.error for each in results if each.error is not None]
        assert all(isinstance(each, EXPECTED) for each in errors), (what, schedule, errors)
        await assert_laws(sessions.watcher, scene, f"{what} in order {schedule}", failed)


async def assert_laws(
    watcher: AsyncConnection[dict[str, Any]], scene: Scene, what: str, may_wait: bool = False
) -> None:
    """The laws of a chain and its dependent, read from the tables themselves."""
    jobs = await rows(watcher, JOBS, scene.chain)
    indices = [job["chain_index"] for job in jobs]
    assert indices == list(range(len(jobs))), f"{what}: the chain has a gap or a fork"
    live = [job for job in jobs if job["live"]]
    for job in jobs:
        assert job["live"] != job["ended"], f"{what}: a job is both live and ended, or neither"
    assert len(live) <= 1, f"{what}: two open tails"
    for job in live:
        assert job is jobs[-1], f"{what}: an open job is not the tail"
        assert job["token"] is None or job["leased"], f"{what}: a token without a lease"
    dependents = await rows(watcher, JOBS, scene.dependent)
    open_edges = await rows(watcher, EDGES, scene.dependent)
    for job in dependents:
        if not job["live"]:
            continue
        if job["blocked"]:
            assert open_edges, f"{what}: blocked with no open edge"
            if may_wait and jobs and not live:
                continue
            assert live, f"{what}: blocked by a chain that has ended or is gone"
            assert live[0]["awaited"], f"{what}: nobody will open the dependent"
        else:
            assert not open_edges, f"{what}: open with an edge still open"
    tally = await rows(watcher, TALLY, scene.type + "%")
    assert tally[0]["counted"] == tally[0]["real"], f"{what}: counters differ from rows"


async def rows(
    watcher: AsyncConnection[dict[str, Any]], query: str, value: str
) -> list[dict[str, Any]]:
    cursor = await watcher.execute(query.encode(), {"value": value})
    return await cursor.fetchall()


JOBS = """
select j.chain_index, q.job_id is not null as live, o.job_id is not null as ended, q.token, q.awaited,
       q.available_at = 'infinity' as blocked,
       exists (select from holdfast.lease l where l.token = q.token and j.id = any (l.job_ids)) as leased
  from holdfast.job j
  left join holdfast.queue q on q.job_id = j.id
  left join holdfast.outcome o on o.job_id = j.id
 where j.chain_id = %(value)s
 order by j.chain_index
"""

EDGES = "select chain_id from holdfast.blocker where job_id = %(value)s and open"

TALLY = """
select (select coalesce(sum(started - completed - failed - cancelled - removed), 0)
          from holdfast.tally where type like %(value)s) as counted,
       (select count(*) from holdfast.queue where type like %(value)s) as real
"""


def attach_and_wait_for_a_redrive(scene: Scene) -> Op[Any]:
    """Attach a job that waits until a failed chain was redriven and completed."""
    waiting = NewJob(
        id=scene.dependent, chain_id=scene.dependent, type=scene.type + "d", input="2", blockers=1
    )
    edge = NewBlocker(scene.dependent, 0, scene.chain, "wait")
    return start_chains(scene.store, [StartRequest(waiting, blockers=(edge,))])


@pytest.mark.parametrize("move", ["delete", "redrive"])
async def test_a_waiter_attached_to_a_failed_chain_is_never_forgotten(
    sessions: Sessions, move: str
) -> None:
    await try_every_order(
        sessions, attach_and_wait_for_a_redrive, MOVES[move], False, 6, move, failed=True
    )


def attach_by_looking(scene: Scene) -> Op[Any]:
    """The planted bug: look whether the blocking chain is over, then write the edge, without marking its tail."""
    waiting = NewJob(
        id=scene.dependent, chain_id=scene.dependent, type=scene.type + "d", input="2", blockers=1
    )
    tails = yield from scene.store.chains.tails([scene.chain])
    yield from scene.store.jobs.insert([waiting])
    yield from scene.store.blockers.insert([NewBlocker(scene.dependent, 0, scene.chain)])
    if tails[0].state == "completed":
        yield from scene.store.blockers.close([(scene.chain, "completed")])
        yield from scene.store.blockers.open_jobs([scene.dependent])


def complete_without_fan_in(scene: Scene) -> Op[Any]:
    """The planted bug: end an awaited job and leave those that wait for it alone."""
    assert scene.claimed is not None
    finish = Finish(
        id=scene.claimed.id,
        token=scene.claimed.token,
        kind="complete",
        worker="w",
        chain_id=scene.chain,
    )
    return (yield from scene.store.jobs.finish([finish], awaited=True))


@pytest.mark.parametrize(
    ("first", "second", "attached"),
    [
        (MOVES["complete"], attach_by_looking, False),
        (complete_without_fan_in, MOVES["claim"], True),
    ],
    ids=["attach by looking", "complete without fan-in"],
)
async def test_a_planted_bug_is_found(
    sessions: Sessions,
    first: Callable[[Scene], Op[Any]],
    second: Callable[[Scene], Op[Any]],
    attached: bool,
) -> None:
    with pytest.raises(AssertionError, match=r"planted in order .* blocked"):
        await try_every_order(sessions, first, second, attached, 4, "planted")
