"""What a store must offer, one small protocol per aggregate. Every method returns an operation; nothing runs by itself.

`now` is an instant for tests; None means the database's clock. Operations marked *one statement* may run outside a
transaction on PostgreSQL; all others need one. SQLite runs every operation inside BEGIN IMMEDIATE.

What a store must offer to keep chains and who waits for whom; the same rules as in `storage.port`.

What a store must offer to those who draw how it went; the same rules as in `storage.port`.

What a store must offer to cycles, runs, retention and the doctor; the same rules as in `storage.port`.

What a store must offer to keep tokens; the same rules as in `storage.port`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.cycle import (
    CycleRecord,
    CycleState,
    HeldSlot,
    NewCycle,
    NewRun,
    RunOutcome,
    RunRecord,
    Slot,
)
from holdfast.core.records import (
    AppliedMigration,
    AttemptRecord,
    AuditRecord,
    BlockerRecord,
    ChainRecord,
    Claim,
    ClaimedJob,
    ClosedEdge,
    DeadGroup,
    Deed,
    EndedJob,
    Ending,
    Finish,
    Finished,
    HealPage,
    Held,
    Identity,
    Instant,
    JobRecord,
    JobRef,
    KeyHolder,
    LeaseRecord,
    NewBlocker,
    NewJob,
    NewKey,
    NewProgress,
    NewToken,
    ProgressRecord,
    QueueTotals,
    ReapPage,
    Reference,
    SeriesPoint,
    Stand,
    State,
    Subscription,
    SubscriptionRecord,
    Swept,
    Tail,
    TokenRecord,
    TypePace,
    TypeSetting,
    TypeTotals,
    VanishedWorker,
    Wait,
    WaitingEvent,
    WaitStep,
    WorkerRecord,
    WorkerSign,
)
from holdfast.storage.operation import Op
from holdfast.storage.query import JobQuery, Walk


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


class ChainStore(Protocol):
    """Chains, their keys and the edges between them."""

    def claim_keys(self, keys: Sequence[NewKey], now: Instant | None = None) -> Op[set[str]]:
        """Claim deduplication keys; return the chain ids that won theirs. All keys share one scope and exclusion list.

        Concurrency: waits for a concurrent producer of the same key. Raises: KeyConflict in REPEATABLE READ.
        """

    def key_holders(self, keys: Sequence[tuple[str, str]]) -> Op[list[KeyHolder]]:
        """Read which chain holds each (type, key), and whether the key outlives it."""

    def keep_keys(self, keys: Sequence[tuple[str, str]]) -> Op[None]:
        """Let keys outlive their chains."""

    def tails(self, chain_ids: Sequence[str]) -> Op[list[Tail]]:
        """Read the last job of each chain and where it stands."""

    def get(self, chain_ids: Sequence[str]) -> Op[list[ChainRecord]]:
        """Read chains by id. One statement."""

    def walk(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[ChainRecord]]:
        """Read a page of chains, newest first, looking at no more than `look` of them. Small statements."""

    def page(self, query: JobQuery, now: Instant | None = None) -> Op[list[ChainRecord]]:
        """Read a page of chains, newest first, however many have to be looked at. Small statements."""

    def jobs(self, chain_id: str) -> Op[list[JobRecord]]:
        """Read the jobs of a chain in order. One statement."""

    def references(self, chain_ids: Sequence[str]) -> Op[list[Reference]]:
        """Read which jobs outside these chains still wait for them."""

    def blocking(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Read the chains that any job of these chains waits or waited for."""

    def delete(
        self, chain_ids: Sequence[str], now: Instant | None = None, keep_keys: bool = False
    ) -> Op[list[str]]:
        """Remove chains with everything that belongs to them; return the job ids removed.

        With `keep_keys` the keys that were claimed with scope `any` stay.
        """


class BlockerStore(Protocol):
    """Edges: a job waits for chains. The protocol around them is in `ops.blockers`."""

    def insert(self, blockers: Sequence[NewBlocker]) -> Op[None]:
        """Write open edges."""

    def wait_on(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Mark live tails as awaited, waiting for whoever ends them; return those that were still live."""

    def hold_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Hold ended tails against a concurrent redrive; return those that are still ended."""

    def lock_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Lock ended tails against a concurrent attachment; return those that are still ended."""

    def lock_dependents(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Lock the jobs that wait for these chains, in id order."""

    def close(self, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        """Close the edges of ended chains that their policy lets through."""

    def open_jobs(self, job_ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Make blocked jobs without open edges pending; return those opened."""

    def of_jobs(self, job_ids: Sequence[str]) -> Op[list[BlockerRecord]]:
        """Read the edges of jobs in declared order, with the blocking chains' results. One statement."""

    def dependents(self, chain_id: str, limit: int) -> Op[list[tuple[str, str]]]:
        """Read which chains wait for a chain, through others too: pairs of the waiting one and the one it waits for."""

    def waiting(self, chain_id: str, limit: int) -> Op[list[BlockerRecord]]:
        """Read the edges that lead to a chain. One statement."""


class FigureStore(Protocol):
    """Figures over time, from the tally and from the youngest results; never from a count of all rows."""

    def series(
        self, span_ms: int, step_ms: int, now: Instant | None = None
    ) -> Op[list[SeriesPoint]]:
        """Read what happened in each step of the last span, oldest first; empty steps are left out. One statement."""

    def waits(self, steps: Sequence[WaitStep], look: int) -> Op[list[Wait]]:
        """Read how long ended jobs waited from due to started, at most `look` of each step. One statement."""

    def types(self, span_ms: int, now: Instant | None = None) -> Op[list[TypePace]]:
        """Read what each type ended within the last span, and how many of it run. One statement."""


class CycleStore(Protocol):
    """Cycles as they are registered, and what people ask of them. A name means the cycle with all its shards."""

    def register(self, cycles: Sequence[NewCycle], now: Instant | None = None) -> Op[None]:
        """Write cycles, which must be in name order; one whose schedule changed begins anew. One statement."""

    def states(self, names: Sequence[str], now: Instant | None = None) -> Op[list[CycleState]]:
        """Read what decides whether cycles are due, by one clock. One statement."""

    def page(self, now: Instant | None = None) -> Op[list[CycleRecord]]:
        """Read every cycle and who runs it. One statement."""

    def pause(
        self, name: str, paused: bool, by: str | None, now: Instant | None = None
    ) -> Op[list[str]]:
        """Pause or resume; return the names found. What a pause left out is not caught up. One statement."""

    def request(self, name: str, slot: str, now: Instant | None = None) -> Op[list[str]]:
        """Ask for a run now; return the names found. One statement."""

    def advance(self, cycle: str, slot: Slot) -> Op[None]:
        """Note that a slot and all before it are decided. One statement."""


class SlotStore(Protocol):
    """Slot records: each completes at most once."""

    def claim(
        self,
        cycle: str,
        slot: Slot,
        token: str,
        run_id: str,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[HeldSlot | None]:
        """Take a slot for one run; None when it is decided, paused, resting after a failure, or the cycle runs.

        Concurrency: claims of one cycle wait for one another; at most one of its slots runs at a time.
        """

    def abandon(self, held: HeldSlot, now: Instant | None = None) -> Op[list[str]]:
        """Give up the cycle's other slots that a dead process left running; return them. One statement."""

    def renew(self, held: HeldSlot, lease_ms: int, now: Instant | None = None) -> Op[bool]:
        """Extend a slot's lease; False when it is lost. One statement."""

    def fence(self, held: HeldSlot) -> Op[bool]:
        """Prove, last in a transaction, that the slot is still held; it cannot be taken over before the commit."""

    def complete(self, held: HeldSlot, now: Instant | None = None) -> Op[bool]:
        """End a slot for good; False when it is lost. Repeating it is harmless. One statement."""

    def fail(self, held: HeldSlot, pause_ms: int | None, now: Instant | None = None) -> Op[bool]:
        """End a run without success: the slot may run again after the pause, without one never. One statement."""


class RunStore(Protocol):
    """Runs of cycles and ticks, also of those that never came to an end."""

    def begin(self, run: NewRun, now: Instant | None = None) -> Op[Instant]:
        """Write a run; return when it began. One statement."""

    def seen(
        self, run_id: str, counters: str | None = None, now: Instant | None = None
    ) -> Op[None]:
        """Give a sign of life, with counters as JSON. One statement."""

    def finish(
        self,
        run_id: str,
        outcome: RunOutcome,
        counters: str,
        error: str | None = None,
        now: Instant | None = None,
    ) -> Op[bool]:
        """End a run; False when it was found dead before. One statement."""

    def crashed(self, run: NewRun, slots: Sequence[str]) -> Op[list[str]]:
        """Mark earlier runs of these slots that never ended as crashed; return their ids. One statement."""

    def page(
        self, limit: int, grace_ms: int, name: str | None = None, now: Instant | None = None
    ) -> Op[list[RunRecord]]:
        """Read the last runs, newest first; one that gave no sign within the grace counts as crashed. One statement."""


class RetentionStore(Protocol):
    """What is old enough to be removed, in bounded batches."""

    def page(self, after: str, until: str, limit: int) -> Op[list[str]]:
        """Read the ids of chains between two ids, oldest first. One statement."""

    def hold(
        self,
        chain_ids: Sequence[str],
        before: Instant,
        dead_before: Instant,
        now: Instant | None = None,
    ) -> Op[list[str]]:
        """Lock and return the chains that ended before the instants and whose key no longer counts.

        Concurrency: what others hold is skipped.
        """

    def waited(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Read which of the chains a live job depends on. One statement."""

    def drop_runs(self, until: str, limit: int) -> Op[int]:
        """Remove runs whose id lies before one; return how many. One statement."""

    def drop_slots(self, before: Instant, limit: int) -> Op[int]:
        """Remove slots that ended before an instant; return how many. One statement."""

    def drop_keys(self, before: Instant, limit: int) -> Op[int]:
        """Remove keys whose chains went before an instant; return how many. One statement."""

    def drop_workers(self, before: Instant, limit: int) -> Op[int]:
        """Remove workers that stopped before an instant; return how many. One statement."""


class VitalsStore(Protocol):
    """What the database says of itself."""

    def document(self) -> Op[str]:
        """Read the dialect's own figures as one JSON object. It only reads."""

    def sweep(self, few: int) -> Op[Swept | None]:
        """Remove dead rows where there are more than a few; None where there was nothing to do, or no right to do it.

        Runs outside a transaction only.
        """


class TokenStore(Protocol):
    """Tokens of the API. Only hashes are stored, and every question about them is by hash or id."""

    def create(self, token: NewToken, now: Instant | None = None) -> Op[TokenRecord]:
        """Write a token and return it. One statement."""

    def find(self, hash: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        """Read the token of a hash; None unless it is valid now. One statement."""

    def touch(self, id: str, now: Instant | None = None) -> Op[None]:
        """Note that a token was used, to the minute. One statement."""

    def revoke(self, id: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        """Make a token invalid from now on; None when there is none that is not revoked. One statement."""

    def page(self, limit: int) -> Op[list[TokenRecord]]:
        """Read tokens, the youngest first. One statement."""

    def exist(self) -> Op[bool]:
        """Say whether any token was ever made. One statement."""
