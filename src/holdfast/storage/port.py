"""What a store must offer, one small protocol per aggregate. Every method returns an operation; nothing runs by itself.

`now` is an instant for tests; None means the database's clock. Operations marked *one statement* may run outside a
transaction on PostgreSQL; all others need one. SQLite runs every operation inside BEGIN IMMEDIATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.model import (
    AttemptRecord,
    Claim,
    ClaimedJob,
    EndedJob,
    Ending,
    Finish,
    Finished,
    Held,
    Instant,
    JobRecord,
    JobRef,
    NewJob,
    QueueTotals,
    Stand,
    TypeSetting,
    WorkerRecord,
)
from holdfast.storage.chain_port import BlockerStore, ChainStore
from holdfast.storage.figure_port import FigureStore
from holdfast.storage.query import JobQuery, Walk
from holdfast.storage.records import (
    AppliedMigration,
    AuditRecord,
    DeadGroup,
    Deed,
    HealPage,
    Identity,
    LeaseRecord,
    NewProgress,
    ProgressRecord,
    ReapPage,
    Subscription,
    SubscriptionRecord,
    TypeTotals,
    VanishedWorker,
    WaitingEvent,
    WorkerSign,
)
from holdfast.storage.schedule_port import (
    CycleStore,
    RetentionStore,
    RunStore,
    SlotStore,
    VitalsStore,
)
from holdfast.storage.statement import Op
from holdfast.storage.token_port import TokenStore


class JobStore(Protocol):
    """Jobs from insert to outcome."""

    def insert(
        self, jobs: Sequence[NewJob], channel: str | None = None, now: Instant | None = None
    ) -> Op[set[str]]:
        """Write jobs and their live rows; return the ids that were new. One statement.

        With a channel, a hint per type is sent with the caller's commit, where the database can do that.
        """

    def claim(self, claim: Claim, now: Instant | None = None) -> Op[list[ClaimedJob]]:
        """Take due jobs under new leases, most urgent and oldest first. One statement.

        Concurrency: rows locked by others are skipped; two claimers never get the same job.
        """

    def next_due(
        self, types: Sequence[str], back_us: int = 0, now: Instant | None = None
    ) -> Op[int | None]:
        """Say in how many microseconds the next free job of these types becomes due. One statement.

        What became due less than `back_us` ago counts too, with a delay below zero.
        """

    def finish(
        self,
        finishes: Sequence[Finish],
        freed: Sequence[str] = (),
        awaited: bool = False,
        now: Instant | None = None,
    ) -> Op[list[Finished]]:
        """End, continue or give back attempts, each proven by its (id, token) pair. One statement.

        Concurrency: locked rows are skipped; what is not returned was lost, is locked, or is awaited while `awaited` is
        false. `freed` names leases whose jobs are known to have ended and that may be removed.
        """

    def stand(self, pairs: Sequence[Held]) -> Op[list[Stand]]:
        """Say what became of (id, token) pairs that a finish or heartbeat did not find. One statement."""

    def lock(self, ids: Sequence[str]) -> Op[set[str]]:
        """Lock live rows in id order, waiting under the lock timeout; return the ids that are live."""

    def end(self, endings: Sequence[Ending], now: Instant | None = None) -> Op[list[EndedJob]]:
        """End live jobs from outside, whoever holds them; jobs that are not live are not returned."""

    def trigger(self, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Make pending jobs due now; return those that were. One statement."""

    def redrive(
        self, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
    ) -> Op[list[JobRef]]:
        """Take failed jobs back into the queue, `spacing_us` apart; return those that were failed. One statement."""

    def get(self, ids: Sequence[str]) -> Op[list[JobRecord]]:
        """Read jobs by id, in id order. One statement."""

    def walk(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[JobRecord]]:
        """Read a page of jobs, newest first, looking at no more than `look` of them. Small statements."""

    def page(self, query: JobQuery, now: Instant | None = None) -> Op[list[JobRecord]]:
        """Read a page of jobs, newest first, however many have to be looked at. Small statements."""

    def attempts(self, job_id: str) -> Op[list[AttemptRecord]]:
        """Read the attempts of a job that did not complete it, oldest first. One statement."""


class LeaseStore(Protocol):
    """Who holds what until when."""

    def renew(self, tokens: Sequence[str], now: Instant | None = None) -> Op[set[str]]:
        """Extend leases by token; return those that still exist. One statement."""

    def held(self, worker: str) -> Op[list[Held]]:
        """Read every job that bears a token of this worker. One statement."""

    def free(self, tokens: Sequence[str]) -> Op[None]:
        """Remove leases that hold nothing any more. One statement."""

    def release(self, tokens: Sequence[str]) -> Op[list[JobRef]]:
        """Give back everything these claims hold, attempts refunded. One statement."""

    def reap(
        self,
        limit: int,
        poison: int,
        after: tuple[Instant, str] | None = None,
        now: Instant | None = None,
    ) -> Op[ReapPage]:
        """Take back the jobs of at most `limit` expired leases, oldest first.

        A job fails as poison when `poison` workers died while they ran it, and the last of them ran nothing else.

        Concurrency: locked leases and rows are skipped and found by a later run; `after` pages past them.
        """

    def evict(self, lost: Sequence[Held]) -> Op[int]:
        """End the transactions that handlers of these attempts still hold open, where a server can; say how many."""

    def heal(self, now: Instant | None = None) -> Op[int]:
        """Shorten leases that end later than they can by the present clock; return how many. One statement."""

    def heal_queue(self, after: str, now: Instant | None = None) -> Op[HealPage]:
        """Move what is due by a clock that ran ahead, in a page of jobs by id; nothing that was planned."""

    def page(self, limit: int, worker: str | None = None) -> Op[list[LeaseRecord]]:
        """Read leases, the soonest to end first. One statement."""

    def isolate(self, token: str) -> Op[bool]:
        """Note that the worker runs nothing but this lease's one job; False when the lease is gone. One statement."""

    def guard(self, idle_ms: int) -> Op[None]:
        """Have the server, where there is one, end this transaction after so long a silence. One statement."""

    def report(self, progress: Sequence[NewProgress], now: Instant | None = None) -> Op[None]:
        """Record how far attempts are; what comes without a valid token is ignored. One statement."""

    def forget(self, progress: Sequence[NewProgress]) -> Op[None]:
        """Remove what these attempts said, unless a later attempt has spoken since. One statement."""

    def progress(self, ids: Sequence[str]) -> Op[list[ProgressRecord]]:
        """Read how far running jobs are; only what their present attempt said. One statement."""


class EventStore(Protocol):
    """Who subscribes to which event."""

    def subscriptions(self, events: Sequence[str]) -> Op[list[Subscription]]:
        """Read the subscriptions of events. One statement."""

    def page(self, limit: int) -> Op[list[SubscriptionRecord]]:
        """Read subscriptions of all events, by event and handler. One statement."""

    def subscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Register subscriptions; return the new ones. One statement."""

    def unsubscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Remove subscriptions; return those that existed. One statement."""

    def waiting(self, event: str, limit: int) -> Op[list[WaitingEvent]]:
        """Lock and read events published before anybody subscribed."""


class WorkerStore(Protocol):
    """Presence of workers, settings of types, totals."""

    def sign(self, sign: WorkerSign, now: Instant | None = None) -> Op[bool]:
        """Write presence and counters; return whether the worker was asked to drain. One statement."""

    def stop(self, worker_id: str, counters: str, now: Instant | None = None) -> Op[None]:
        """Say goodbye. One statement."""

    def drain(self, worker_id: str) -> Op[bool]:
        """Ask a worker to drain; False when there is no such live worker. One statement."""

    def page(
        self, limit: int, live_within_ms: int | None = None, now: Instant | None = None
    ) -> Op[list[WorkerRecord]]:
        """Read workers, the youngest first; only live ones when a grace is given. One statement."""

    def vanished(self, grace_ms: int, now: Instant | None = None) -> Op[list[VanishedWorker]]:
        """Mark and return workers that stopped giving signs; each is returned to one caller. One statement."""

    def settings(self) -> Op[list[TypeSetting]]:
        """Read the settings changed at run time. One statement."""

    def set_type(
        self,
        type: str,
        *,
        paused: bool | None = None,
        by: str | None = None,
        lease_ms: int | None = None,
        timeout_ms: int | None = None,
        concurrency: int | None = None,
        max_attempts: int | None = None,
        now: Instant | None = None,
    ) -> Op[None]:
        """Change settings of a type; None leaves a value, -1 takes it back to the code's own. One statement."""

    def totals(
        self, limit: int, now: Instant | None = None
    ) -> Op[tuple[QueueTotals, list[TypeTotals]]]:
        """Read totals of the whole and of each type; live counts stop at `limit`."""

    def type_totals(self, now: Instant | None = None) -> Op[list[TypeTotals]]:
        """Read totals per type. One statement."""

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[int]:
        """Fold at most `limit` tally rows together, the older the wider the step; return how many."""


class DeadLetterStore(Protocol):
    """Failed jobs by their kind. Redriving is a move of jobs, dropping one of chains."""

    def groups(self, limit: int, look: int) -> Op[list[DeadGroup]]:
        """Read the `limit` largest groups by type and kind of error among the youngest `look`. One statement."""


class AuditStore(Protocol):
    """Who did what."""

    def append(self, deeds: Sequence[Deed], now: Instant | None = None) -> Op[None]:
        """Write deeds, in the transaction of what was done. One statement."""

    def page(
        self,
        limit: int,
        before: tuple[Instant, str] | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> Op[list[AuditRecord]]:
        """Read deeds, the newest first, from the deed `before` on. One statement."""


class SchemaStore(Protocol):
    """The schema's own records."""

    def applied(self) -> Op[list[AppliedMigration]]:
        """Read the migrations applied, in order. One statement."""

    def record(self, migration: AppliedMigration) -> Op[None]:
        """Record a migration as applied."""

    def identity(self) -> Op[Identity | None]:
        """Read which database this is and whether everything is paused. One statement."""

    def identify(self, id: str) -> Op[None]:
        """Give a new database its identity; an existing one stays. One statement."""

    def adopt(self, id: str) -> Op[None]:
        """Give a copied database a new identity under its present name. One statement."""

    def pause(self, paused: bool, by: str | None, now: Instant | None = None) -> Op[None]:
        """Pause or resume everything. One statement."""

    def clock(self) -> Op[Instant]:
        """Read the database's clock. One statement."""

    def notify(self, channel: str, payloads: Sequence[str]) -> Op[None]:
        """Have hints sent with the caller's commit, where the database can do that. One statement."""


class Store(Protocol):
    """The meaning, per dialect."""

    @property
    def dialect(self) -> str: ...
    @property
    def jobs(self) -> JobStore: ...
    @property
    def leases(self) -> LeaseStore: ...
    @property
    def chains(self) -> ChainStore: ...
    @property
    def blockers(self) -> BlockerStore: ...
    @property
    def events(self) -> EventStore: ...
    @property
    def workers(self) -> WorkerStore: ...
    @property
    def dead_letters(self) -> DeadLetterStore: ...
    @property
    def audit(self) -> AuditStore: ...
    @property
    def tokens(self) -> TokenStore: ...
    @property
    def figures(self) -> FigureStore: ...
    @property
    def cycles(self) -> CycleStore: ...
    @property
    def slots(self) -> SlotStore: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def retention(self) -> RetentionStore: ...
    @property
    def vitals(self) -> VitalsStore: ...
    @property
    def schema(self) -> SchemaStore: ...
