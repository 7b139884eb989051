"""A state machine makes the same random moves on the model, on SQLite and on PostgreSQL, and compares all three."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.core.errors import HoldfastError, StillReferenced, WrongState
from holdfast.core.model import (
    TERMINAL,
    Claim,
    ClaimedJob,
    Ending,
    Finish,
    FinishKind,
    Instant,
    KeyScope,
    LeaseClass,
    NewBlocker,
    NewJob,
    NewKey,
    OnBlockerFailure,
    Probe,
)
from holdfast.ops.delete import delete_chains
from holdfast.ops.end import cancel_chain, end_chain
from holdfast.ops.finish import finish_attempts
from holdfast.ops.move import redrive_jobs, trigger_jobs
from holdfast.ops.reap import reap_leases
from holdfast.ops.start import StartRequest, start_chains
from holdfast.storage.database import Database
from holdfast.storage.identifiers import new_id
from holdfast.storage.port import Store
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.query import JobQuery
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.statement import Op
from tests.model.model import Model, picture_of
from tests.support.postgres import PostgresServer

TYPES = ["a", "b"]
EPOCH: Instant = 1_800_000_000_000_000
NIL = "00000000-0000-0000-0000-000000000000"
POISON = 3
EXAMPLES = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "12"))


class StoresAgainstModel(RuleBasedStateMachine):
    """The machine. `databases` is set by the test, one fresh pair per example."""

    fresh: Callable[[], list[Database]]

    def __init__(self) -> None:
        super().__init__()
        self.databases = type(self).fresh()
        self.model = Model()
        self.now = EPOCH
        self.held: list[ClaimedJob] = []
        self.stale: list[ClaimedJob] = []

    def teardown(self) -> None:
        for database in self.databases:
            database.close()

    def both(self, op: Callable[[Store], Op[Any]]) -> list[Any]:
        """Run an operation on each store; errors are answers too."""
        answers: list[Any] = []
        for database in self.databases:
            try:
                answers.append(database.run(op(database.store)))
            except HoldfastError as error:
                answers.append(type(error))
        return answers

    def same(self, op: Callable[[Store], Op[Any]]) -> Any:
        """Run an operation on each store and return the answer they agree on."""
        first, second = self.both(op)
        assert first == second
        return first

    @rule(seconds=st.integers(0, 90))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1_000_000 + 1000

    @rule(
        type=st.sampled_from(TYPES),
        priority=st.integers(3, 6),
        delay_s=st.sampled_from([None, -5, 0, 30]),
        max_attempts=st.sampled_from([None, 1, 2]),
        key=st.sampled_from([None, None, "k1", "k2"]),
        scope=st.sampled_from(["open", "any"]),
        window_s=st.sampled_from([None, 40]),
        on_failure=st.sampled_from(["fail", "wait", "run"]),
        data=st.data(),
    )
    def start(
        self,
        type: str,
        priority: int,
        delay_s: int | None,
        max_attempts: int | None,
        key: str | None,
        scope: KeyScope,
        window_s: int | None,
        on_failure: OnBlockerFailure,
        data: st.DataObject,
    ) -> None:
        chains = sorted({each.new.chain_id for each in self.model.jobs.values()})
        wanted = (
            data.draw(st.lists(st.sampled_from(chains), max_size=3, unique=True)) if chains else []
        )
        id = new_id()
        job = NewJob(
            id=id,
            chain_id=id,
            type=type,
            input="1",
            priority=priority,
            at=None if delay_s is None else self.now + delay_s * 1_000_000,
            key=key,
            max_attempts=max_attempts,
            blockers=len(wanted),
        )
        edges = [NewBlocker(id, place, each, on_failure) for place, each in enumerate(wanted)]
        window = None if window_s is None else window_s * 1000
        new_key = None if key is None else NewKey(type, key, id, scope, window)
        request = StartRequest(job, new_key, tuple(edges))
        started = self.same(lambda store: start_chains(store, [request], now=self.now))
        stands = self.model.start(job, new_key, edges, self.now)
        assert started[0].id == stands
        assert started[0].deduplicated == (stands != id)

    @rule(
        limit=st.integers(1, 4),
        types=st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
        lease_s=st.sampled_from([10, 60]),
    )
    def claim(self, limit: int, types: list[str], lease_s: int) -> None:
        token = new_id()
        rules = LeaseClass(token, lease_s * 1000, 3, 5_000, 20_000)
        probes = tuple(
            Probe(each, priority, token, limit, 0, NIL) for each in types for priority in range(10)
        )
        request = Claim("w", limit, probes, (rules,))
        jobs = self.same(lambda store: store.jobs.claim(request, self.now))
        expected = self.model.claim(types, dict.fromkeys(types, rules), limit, self.now)
        assert [each.id for each in jobs] == expected
        self.held += jobs

    @precondition(lambda self: self.held)
    @rule(
        kind=st.sampled_from(
            ["complete", "continue", "fail", "retry", "snooze", "release", "cancel"]
        ),
        delay_s=st.integers(0, 40),
        blocked=st.booleans(),
        data=st.data(),
    )
    def finish(self, kind: FinishKind, delay_s: int, blocked: bool, data: st.DataObject) -> None:
        claimed = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.stale.append(claimed)
        finish = self._finish_of(claimed, kind, delay_s * 1000)
        others = sorted(
            {each.new.chain_id for each in self.model.jobs.values()} - {claimed.chain_id}
        )
        if kind == "continue" and blocked and others:
            edge = NewBlocker(
                finish.next.id if finish.next else "", 0, data.draw(st.sampled_from(others))
            )
            finish = self._finish_of(claimed, kind, 0, edge)
        self._make(finish)

    @precondition(lambda self: self.stale)
    @rule(
        kind=st.sampled_from(["complete", "continue", "fail", "retry", "release"]), data=st.data()
    )
    def finish_with_an_old_token(self, kind: FinishKind, data: st.DataObject) -> None:
        claimed = data.draw(st.sampled_from(self.stale))
        self._make(self._finish_of(claimed, kind, 0))

    def _finish_of(
        self, claimed: ClaimedJob, kind: FinishKind, delay_ms: int, edge: NewBlocker | None = None
    ) -> Finish:
        successor = None
        if kind == "continue":
            successor = NewJob(
                id=edge.job_id if edge else new_id(),
                chain_id=claimed.chain_id,
                chain_index=claimed.chain_index + 1,
                type=claimed.type,
                input="2",
                blockers=1 if edge else 0,
            )
        return Finish(
            id=claimed.id,
            token=claimed.token,
            kind=kind,
            worker="w",
            chain_id=claimed.chain_id,
            output="3" if kind in ("complete", "continue") else None,
            error="boom" if kind in ("fail", "retry", "cancel") else None,
            delay_ms=delay_ms,
            next=successor,
            next_blockers=[edge] if edge else [],
        )

    def _make(self, finish: Finish) -> None:
        reports = self.both(lambda store: finish_attempts(store, [finish], now=self.now))
        accepted = self.model.finish(finish, self.now)
        assert [bool(each.accepted) for each in reports] == [accepted, accepted]

    @rule()
    def reap(self) -> None:
        self.both(lambda store: reap_leases(store, 100, POISON, None, self.now))
        self.model.reap(POISON, self.now)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.held)).token
        renewed = self.same(lambda store: store.leases.renew([token], self.now))
        assert bool(renewed) == self.model.renew(token, self.now)

    @precondition(lambda self: self.model.jobs)
    @rule(
        how=st.sampled_from(["cancel", "complete", "continue", "delete", "trigger", "redrive"]),
        data=st.data(),
    )
    def from_outside(self, how: str, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        chain_id = self.model.jobs[job_id].new.chain_id
        match how:
            case "trigger":
                answer = self.same(lambda store: trigger_jobs(store, [job_id], self.now))
                assert (answer is not WrongState) == self.model.trigger(job_id, self.now)
            case "redrive":
                answer = self.same(lambda store: redrive_jobs(store, [job_id], 0, self.now))
                assert bool(answer) == self.model.redrive(job_id, self.now)
            case "delete":
                answer = self.both(lambda store: delete_chains(store, [chain_id], now=self.now))
                refused = self.model.waiting_for({chain_id})
                assert [each is StillReferenced for each in answer] == [refused, refused]
                if not refused:
                    self.model.delete(chain_id)
            case _:
                self._end_chain(chain_id, how)

    def _end_chain(self, chain_id: str, how: str) -> None:
        tail = self.model.tail(chain_id)
        over = tail.state in TERMINAL
        successor = NewJob(
            id=new_id(),
            chain_id=chain_id,
            chain_index=tail.new.chain_index + 1,
            type="a",
            input="4",
        )
        if how == "cancel":
            answer = self.both(lambda store: cancel_chain(store, chain_id, now=self.now))
            ending = Ending(tail.new.id, "cancelled")
        elif how == "complete":
            answer = self.both(
                lambda store: end_chain(store, chain_id, "completed", output="5", now=self.now)
            )
            ending = Ending(tail.new.id, "completed", "5")
        else:
            answer = self.both(
                lambda store: end_chain(store, chain_id, "completed", next=successor, now=self.now)
            )
            ending = Ending(tail.new.id, "completed", next=successor)
        assert [each is WrongState for each in answer] == [over, over]
        if not over:
            self.model.end_outside(ending, self.now)

    @invariant()
    def all_three_agree(self) -> None:
        pictures = [
            picture_of(database.run(database.store.jobs.page(JobQuery(limit=10_000), self.now)))
            for database in self.databases
        ]
        assert pictures[0] == pictures[1]
        assert pictures[0] == self.model.picture()

    @invariant()
    def edges_agree(self) -> None:
        ids = sorted(self.model.jobs)
        edges = [
            {
                (each.job_id, each.position, each.open)
                for each in database.run(database.store.blockers.of_jobs(ids))
            }
            for database in self.databases
        ]
        expected = {(each.edge.job_id, each.edge.position, each.open) for each in self.model.edges}
        assert edges == [expected, expected]


@pytest.fixture
def fresh_pair(
    postgres_server: PostgresServer, tmp_path: Path
) -> Iterator[Callable[[], list[Database]]]:
    """Makes an empty SQLite and an empty PostgreSQL for each example."""
    with postgres_server.database() as url:
        cleaner = PostgresDatabase(url)

        def fresh() -> list[Database]:
            folder = tempfile.mkdtemp(dir=tmp_path)
            sqlite = SqliteDatabase(Path(folder) / "model.db")
            sqlite.migrate()
            with cleaner.transaction() as transaction:
                transaction.execute(EMPTY)
            return [sqlite, PostgresDatabase(url)]

        yield fresh
        cleaner.close()


EMPTY = """
truncate holdfast.job, holdfast.queue, holdfast.lease, holdfast.outcome, holdfast.attempt, holdfast.blocker,
         holdfast.chain_key, holdfast.tally
"""


def test_both_stores_do_what_the_model_does(fresh_pair: Callable[[], list[Database]]) -> None:
    machine = type("Machine", (StoresAgainstModel,), {"fresh": staticmethod(fresh_pair)})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
