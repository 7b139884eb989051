"""Jobs from insert to outcome, what some of them wait for, dead letters, and the subscriptions of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.core.ids import ids_beginning
from holdfast.core.instants import Expiry, Instant
from holdfast.core.partitions import LimitedAnswer, LimitedClaim, SignalMark
from holdfast.core.records import (
    AttemptRecord,
    Claim,
    ClaimedJob,
    EndedJob,
    Ending,
    FailingJob,
    Finish,
    Finished,
    Held,
    JobRecord,
    JobRef,
    LeaseStatus,
    NewJob,
    NewRevision,
    Probe,
    RedrivePace,
    RedriveRecord,
    RevisionRecord,
    Settled,
    UnreadableGroup,
    UnreadableJob,
)
from holdfast.core.statistics import DeadGroup, TypeTotals
from holdfast.core.subscriptions import (
    KeptEvent,
    Replaying,
    StoredEvent,
    Subscription,
    SubscriptionRecord,
    WaitingEvent,
)
from holdfast.storage.operation import Op, Row, Statement, Value
from holdfast.storage.store.pagination import JobQuery, Lists, Step, Walk, along, among, within
from holdfast.storage.store.params import (
    array,
    document,
    fetch,
    fetch_column,
    fetch_one,
    fetch_set,
    fetch_value,
    items,
    lists,
    texts,
)

NEWEST_BY_END = 100_000
"""How many jobs are searched for an id by its end: a tenth of a second."""
_NO_VERSIONS: Mapping[str, int] = {}


class JobStore(Lists[JobRecord]):
    """Jobs from insert to outcome."""

    _record = JobRecord
    _listing = "job_list"

    def _may_match(self, query: JobQuery, now: Instant | None) -> Op[bool]:
        totals = yield from fetch(TypeTotals, "type_totals", now=now)
        return query.count_among(totals) != 0

    def _step(self, query: JobQuery) -> Step:
        if query.ids is not None:
            return among(query.ids)
        if query.chain is not None:
            return along("job_walk_chain", chain=query.chain)
        if query.blocker is not None:
            return along("job_walk_blocker", blocker=query.blocker)
        if query.key is not None:
            return along("job_walk_key", key=query.key)
        if query.context is not None:
            return within(query.context)
        return along(query.source)

    def insert(
        self, jobs: Sequence[NewJob], channel: str | None = None, now: Instant | None = None
    ) -> Op[set[str]]:
        """Write jobs and their live rows; return the ids that were new. One statement.

        With a channel, a hint per type is sent with the caller's commit, where the database can do that.
        """
        shared: dict[str, Value] = {"channel": channel, "now": now}
        if any(each.gate is not None for each in jobs):
            rows = yield Statement("job_insert_limited", {"rows": document(jobs), **shared})
        elif len(jobs) == 1:
            rows = yield Statement("job_insert_one", {**_fields_of(jobs[0]), **shared})
        else:
            rows = yield Statement("job_insert", {"rows": document(jobs), **shared})
        return {row[0] for row in rows}

    def insert_new(self, job: NewJob, channel: str | None = None) -> Op[None]:
        """Write a job that begins a chain and has no options, under an id just made. One statement."""
        if job.gate is not None or job.version is not None or job.context is not None:
            yield from self.insert([job], channel)
            return
        yield Statement(
            "job_insert_new",
            {
                "id": job.id,
                "type": job.type,
                "input": job.input,
                "trace": job.trace,
                "channel": channel,
                "now": None,
            },
        )

    def claim(self, claim: Claim, now: Instant | None = None) -> Op[list[ClaimedJob]]:
        """Take due jobs under new leases, most urgent and oldest first. One statement.

        Concurrency: rows locked by others are skipped; two claimers never get the same job.
        """
        shared: dict[str, Value] = {
            "worker": claim.worker,
            "limit": claim.limit,
            "allow_crashed": claim.allow_crashed,
            "commit": claim.commit,
            "now": now,
        }
        if _is_of_known_queues(claim):
            (held,) = claim.classes
            queues = {**_queues(claim.probes), **msgspec.structs.asdict(held)}
            rows = yield Statement("job_claim_queues", {**queues, **shared})
        else:
            probes = {**_probe_params(claim.probes), "classes": document(claim.classes)}
            rows = yield Statement("job_claim", {**probes, **shared})
        return [ClaimedJob(*row) for row in rows]

    def claim_limited(self, claim: LimitedClaim, now: Instant | None = None) -> Op[LimitedAnswer]:
        """Poll the partitions of a type that have signals, and take what they let through. One statement.

        Concurrency: partitions, jobs and signals that others hold are left to another poll, and nothing waits for them.
        """
        name = "limit_claim" if claim.max_cost is None else "limit_claim_by_cost"
        rows = yield Statement(name, {**_limited_params(claim), "now": now})
        return _limited_answer(rows)

    def next_due(
        self,
        types: Sequence[str],
        back_us: int = 0,
        now: Instant | None = None,
        reads: Mapping[str, int] = _NO_VERSIONS,
    ) -> Op[int | None]:
        """Say in how many microseconds the next free job of these types becomes due. One statement.

        What became due less than `back_us` ago counts too, with a delay below zero; no version of a type above `reads`.
        """
        versions = document([reads.get(each) for each in types])
        return fetch_value(
            "job_next_due", types=texts(types), reads=versions, back_us=back_us, now=now
        )

    def finish(
        self,
        finishes: Sequence[Finish],
        freed: Sequence[str] = (),
        awaited: bool = False,
        now: Instant | None = None,
    ) -> Op[list[Finished]]:
        """End, continue or give back attempts, each proven by its (id, token) pair. One statement, parks in another.

        Concurrency: locked rows are skipped; what is not returned was lost, is locked, or is awaited while `awaited` is
        false. `freed` names leases whose jobs are known to have ended and that may be removed.
        """
        shared: dict[str, Value] = {"awaited": awaited, "now": now}
        if not awaited and any(each.drop for each in finishes):
            drops, others = split_drops(finishes)
            rows = yield Statement("job_drop", {**_columns(drops), "freed": array(freed), **shared})
            done = (yield from self.finish(others, (), awaited, now)) if others else []
            return [*(Finished(*row) for row in rows), *done]
        if not _are_completions_of_one(finishes):
            parks = [each for each in finishes if each.kind == "park"]
            if parks:
                given = {"rows": document(parks), "freed": array(freed)}
                rows = yield Statement("job_park", {**given, **shared})
                others = [each for each in finishes if each.kind != "park"]
                done = (yield from self.finish(others, (), awaited, now)) if others else []
                return [*(Finished(*row) for row in rows), *done]
            ends = {"rows": document(finishes), "freed": array(freed)}
            rows = yield Statement("job_finish", {**ends, **shared})
            return [Finished(*row) for row in rows]
        is_limited = any(each.gate is not None for each in finishes)
        if len(finishes) == 1 and not is_limited and not awaited:
            (only,) = finishes
            rows = yield Statement(
                "job_complete_one",
                {
                    "id": only.id,
                    "token": only.token,
                    "worker": only.worker,
                    "started_at": only.started_at,
                    "output": only.output,
                    "freed": array(freed),
                    "now": now,
                },
            )
            return [Finished(only.id, type, False) for (type,) in rows]
        name = "job_complete_limited" if is_limited else "job_complete"
        rows = yield Statement(name, {**_columns(finishes), "freed": array(freed), **shared})
        every = [each.id for each in finishes]
        return [
            Finished(id, type, waited)
            for ids, type, waited in rows
            for id in (every if ids is None else items(ids))
        ]

    def lease_status(self, pairs: Sequence[Held]) -> Op[list[LeaseStatus]]:
        """Say what became of (id, token) pairs that a finish or heartbeat did not find. One statement."""
        return fetch(LeaseStatus, "job_lease_status", rows=document(pairs))

    def lock(self, ids: Sequence[str]) -> Op[set[str]]:
        """Lock live rows in id order, waiting under the lock timeout; return the ids that are live."""
        return fetch_set("job_lock", ids=texts(ids))

    def end(self, endings: Sequence[Ending], now: Instant | None = None) -> Op[list[EndedJob]]:
        """End live jobs from outside, even if a worker holds them; jobs that are not live are not returned."""
        return fetch(EndedJob, "job_end", rows=document(endings), now=now)

    def trigger(self, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Make pending jobs due now; return those that were. One statement."""
        return fetch(JobRef, "job_trigger", ids=texts(ids), now=now)

    def redrive(
        self, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
    ) -> Op[list[JobRef]]:
        """Take failed jobs back into the queue, `spacing_us` apart; return those that were failed. One statement."""
        return fetch(JobRef, "job_redrive", ids=texts(ids), spacing_us=spacing_us, now=now)

    def get(self, ids: Sequence[str]) -> Op[list[JobRecord]]:
        """Read jobs by id, in id order. One statement."""
        return fetch(JobRecord, "job_get", ids=texts(ids))

    def matching(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[JobRef]]:
        """Find what `walk` finds, without reading payloads and errors. Small statements."""
        return self._walk(JobRef, "job_matching", query, look, now)

    def ids_like(self, digits: str, limit: int, chains: bool = False) -> Op[list[str]]:
        """Return ids that begin with these digits, or end with them among the newest jobs. One statement."""
        first, last = ids_beginning(digits)
        return fetch_column(
            "job_ids_like",
            digits=digits,
            first=first,
            last=last,
            newest=NEWEST_BY_END,
            chains=chains,
            limit=limit,
        )


def _fields_of(job: NewJob) -> dict[str, Value]:
    """What a job in no partition has."""
    fields = msgspec.structs.asdict(job)
    del fields["gate"], fields["ordered"], fields["cost"]
    return fields


def split_drops(finishes: Sequence[Finish]) -> tuple[list[Finish], list[Finish]]:
    """Return those that leave nothing behind, and the others."""
    return [each for each in finishes if each.drop], [each for each in finishes if not each.drop]


def _are_completions_of_one(finishes: Sequence[Finish]) -> bool:
    """Whether a flush is as it mostly is: nothing but completions, all of one worker."""
    kinds = {(each.kind, each.worker) for each in finishes}
    return len(kinds) == 1 and kinds.pop()[0] == "complete"


def _is_of_known_queues(claim: Claim) -> bool:
    """Whether a claim is as it mostly is: all priorities known, no type with a limit, and one kind of lease."""
    return len(claim.classes) == 1 and all(
        each.priority is not None and each.max is None for each in claim.probes
    )


def _queues(probes: Sequence[Probe]) -> dict[str, Value]:
    """Probes as columns, which are read in a third of the time, and of which the planner expects fewer."""
    return {
        "types": texts([each.type for each in probes]),
        "priorities": _numbers([each.priority for each in probes]),
        "rooms": _numbers([each.room for each in probes]),
        "shares": _numbers([each.room if each.share is None else each.share for each in probes]),
        "afters": _numbers([each.after for each in probes]),
        "after_ids": array([each.after_id for each in probes]),
        "reads": _numbers([each.reads for each in probes]),
    }


def _probe_params(probes: Sequence[Probe]) -> dict[str, Value]:
    return {
        **_queues(probes),
        "type_tokens": array([each.token for each in probes]),
        "maxes": _numbers(each.max for each in probes),
    }


def _numbers(values: Iterable[int | None]) -> str:
    return array(["null" if each is None else str(each) for each in values])


def _limited_params(claim: LimitedClaim) -> dict[str, Value]:
    return {
        **msgspec.structs.asdict(claim.per_key),
        "max_cost": claim.max_cost,
        "type": claim.type,
        "worker": claim.worker,
        "limit": claim.limit,
        "window": claim.window,
        "partitions": claim.partitions,
        "shared": document(claim.shared),
        "ordered": claim.ordered,
        "holds": claim.holds,
        "weights": document(claim.weights),
        "per_round": claim.per_round,
        "batch": claim.batch.size if claim.batch else None,
        "batch_wait_ms": claim.batch.wait_ms if claim.batch else 0,
        "calls": claim.calls,
        "priorities": array([str(each.priority) for each in claim.marks]),
        "mark_ats": array([str(each.at) for each in claim.marks]),
        "mark_ns": array([str(each.n) for each in claim.marks]),
        "allow_crashed": claim.allow_crashed,
        "commit": claim.commit,
        "reads": claim.reads,
        **msgspec.structs.asdict(claim.lease),
    }


def _limited_answer(rows: Sequence[Row]) -> LimitedAnswer:
    """Read a poll: every row repeats what it says of the whole, and a row without a job says nothing else."""
    signals, partitions, left, room, next_us, marks = rows[0][:6]
    return LimitedAnswer(
        [ClaimedJob(*row[6:]) for row in rows if row[6] is not None],
        signals,
        partitions,
        left,
        next_us,
        held_back=room == 0,
        busy=room < 0,
        marks=tuple(SignalMark(*each) for each in lists(marks)),
    )


def _columns(completions: Sequence[Finish]) -> dict[str, str]:
    """Completions of one worker as columns: a flush is long, and its rows have little in them."""
    numbers: dict[str, str] = {}
    for each in completions:
        numbers.setdefault(each.token, str(len(numbers) + 1))
    return {
        "worker": completions[0].worker,
        "ids": array([each.id for each in completions]),
        "tokens": array(list(numbers)),
        "token_numbers": array([numbers[each.token] for each in completions]),
        "started_at": _numbers(each.started_at for each in completions),
        "outputs": document([each.output for each in completions]),
    }


class ExpiryStore:
    """When jobs are given up that have not begun."""

    def set(self, times: Mapping[str, Expiry], now: Instant | None = None) -> Op[None]:
        """Note when jobs that were just inserted are given up. One statement."""
        rows = [{"job_id": id, "at": at, "after_ms": ms} for id, (at, ms) in times.items()]
        yield Statement("job_set_expiry", {"rows": document(rows), "now": now})

    def find_due(self, limit: int, now: Instant | None = None) -> Op[list[str]]:
        """Lock waiting jobs whose time is over. Concurrency: what others hold is skipped. One statement."""
        return fetch_column("job_expired", limit=limit, now=now)


class DebounceStore:
    """Revisions: what debounced jobs are asked for again with, until the newest becomes their input."""

    def append(self, revisions: Sequence[NewRevision], now: Instant | None = None) -> Op[set[str]]:
        """Append revisions in their order; return the jobs that took theirs. One statement.

        Concurrency: never waits for another producer. A claim of the job waits, in effect, for the caller's commit.
        """
        return fetch_set("revision_add", rows=document(revisions), now=now)

    def settle(self, pairs: Sequence[Held], now: Instant | None = None) -> Op[list[Settled]]:
        """Give claimed jobs their newest input or a later time. One statement.

        Concurrency: what is not returned was lost or is locked, and may not start.
        """
        return fetch(Settled, "revision_settle", rows=document(pairs), now=now)

    def hurry(self, ids: Sequence[str]) -> Op[None]:
        """Let jobs wait no longer for quiet, unless they are asked for again. One statement."""
        yield Statement("revision_hurry", {"ids": texts(ids)})

    def mark(self, ids: Sequence[str]) -> Op[None]:
        """Let jobs that were inserted as blocked take revisions. One statement."""
        yield Statement("revision_follow", {"ids": texts(ids)})

    def of_job(self, job_id: str) -> Op[RevisionRecord | None]:
        """Read when a job starts if it is not asked for again; None when it does not wait for that. One statement."""
        return fetch_one(RevisionRecord, "revision_get", id=job_id)


class UnreadableStore:
    """Jobs that wait for code that can read their input."""

    def note(self, id: str, type: str, error: str, now: Instant | None = None) -> Op[int]:
        """Remember a job, or its newer error; return for how many microseconds it has been known. One statement."""
        return fetch_value("unreadable_note", id=id, type=type, error=error, now=now)

    def since(self, id: str, error: str | None = None) -> Op[Instant | None]:
        """Read when a worker first could not read a job, if its last attempt ended with this error. One statement."""
        return fetch_value("unreadable_since", id=id, error=error)

    def page(self, types: Sequence[str], after: str, limit: int) -> Op[list[UnreadableJob]]:
        """Read those of some types after an id, also such as have ended meanwhile. One statement."""
        return fetch(UnreadableJob, "unreadable_page", types=texts(types), after=after, limit=limit)

    def forget(self, ids: Sequence[str]) -> Op[None]:
        """Forget jobs. One statement."""
        yield Statement("unreadable_forget", {"ids": texts(ids)})

    def newer(
        self, types: Sequence[str], reads: Mapping[str, int], now: Instant | None = None
    ) -> Op[list[Row]]:
        """Read where the last jobs above these versions are, due for a while, by queue: [type, priority, at, id]."""
        asked = {"types": texts(types), "reads": document([reads.get(each) for each in types])}
        return (yield Statement("unreadable_newer", {**asked, "now": now}))

    def count(self, limit: int, now: Instant | None = None) -> Op[int]:
        """Count those that still wait, up to a limit. One statement."""
        return fetch_value("unreadable_count", limit=limit, now=now)

    def groups(self, now: Instant | None = None) -> Op[list[UnreadableGroup]]:
        """Count those that still wait, by type. One statement."""
        return fetch(UnreadableGroup, "unreadable_groups", now=now)


class AttemptStore:
    """Attempts that did not complete their jobs."""

    def last_errors(self, ids: Sequence[str]) -> Op[dict[str, str]]:
        """Read how the last attempts of jobs ended that did not complete them. One statement."""
        rows = yield Statement("job_last_errors", {"ids": texts(ids)})
        return {row[0]: row[1] for row in rows if row[1] is not None}

    def of(self, job_id: str) -> Op[list[AttemptRecord]]:
        """Read the attempts of a job that did not complete it, oldest first. One statement."""
        return fetch(AttemptRecord, "job_attempts", id=job_id)

    def crashed_before(self, job_id: str) -> Op[int]:
        """Count the jobs whose worker died before a waiting one in its queue, among the nearest. One statement."""
        return fetch_value("job_crashed_before", id=job_id)


class DeadLetterStore:
    """Failed jobs by their kind. Redriving is a move of jobs, dropping one of chains."""

    def groups(self, limit: int, look: int) -> Op[list[DeadGroup]]:
        """Read the `limit` largest groups by type and kind of error among the newest `look`. One statement."""
        return fetch(DeadGroup, "dead_groups", limit=limit, look=look)


class OnFailedStore:
    """Types with an `on_failed`, and their failed jobs for which it is still to be called."""

    def declare(self, types: Sequence[str]) -> Op[None]:
        """Record that these types have one, for whoever finds that a job has failed. One statement."""
        yield Statement("on_failed_declare", {"types": texts(types)})

    def types(self) -> Op[set[str]]:
        """Read which types have one. One statement."""
        return fetch_set("on_failed_list")

    def defer(self, ids: Sequence[str], tries: int, now: Instant | None = None) -> Op[list[JobRef]]:
        """Take jobs that this transaction has failed back into the queue, those for which it is to be called.

        Not if that was tried so often already, or if no worker has taken the job since the last time: those have
        failed, after as many attempts as they had of their own.
        """
        return fetch(JobRef, "on_failed_defer", ids=texts(ids), tries=tries, spacing_us=0, now=now)

    def of_job(self, job_id: str) -> Op[FailingJob | None]:
        """Read why a job fails. One statement."""
        return fetch_one(FailingJob, "on_failed_of", id=job_id)


class RedriveStore:
    """Redrives at a rate that are under way, and the dead letters they are to re-queue."""

    def add(
        self, id: str, ids: Sequence[str], spacing_us: int, now: Instant | None = None
    ) -> Op[list[JobRef]]:
        """Plan failed jobs for a redrive, which begins with its first; return those that had failed."""
        planned = yield from fetch(JobRef, "redrive_add", id=id, ids=texts(ids))
        if planned:
            yield Statement("redrive_begin", {"id": id, "spacing_us": spacing_us, "now": now})
        return planned

    def forget(self, ids: Sequence[str]) -> Op[None]:
        """Take jobs out of redrives that have not come to them. One statement."""
        yield Statement("redrive_forget", {"ids": texts(ids)})

    def under_way(self, job_id: str | None = None) -> Op[list[RedriveRecord]]:
        """Read all that are under way, or the one that is to re-queue a job. One statement."""
        return fetch(RedriveRecord, "redrive_list", job_id=job_id)

    def find(self, types: Sequence[str]) -> Op[list[str]]:
        """Read the ids of those that have jobs of these types left. One statement."""
        return fetch_column("redrive_find", types=texts(types))

    def lock(self, id: str, now: Instant | None = None) -> Op[RedrivePace | None]:
        """Lock one and say where it is; None when it has ended or another worker has it. One statement."""
        return fetch_one(RedrivePace, "redrive_lock", id=id, now=now)

    def count_waiting(self, id: str) -> Op[int]:
        """Count its jobs that were re-queued and have not started."""
        yield Statement("redrive_started", {"id": id})
        waiting: int = yield from fetch_value("redrive_waiting", id=id)
        return waiting

    def take(self, id: str, types: Sequence[str], limit: int, next_at: Instant) -> Op[list[str]]:
        """Take the next jobs of these types, and note when the ones after them become due.

        It ends with its last job.
        """
        ids = yield from fetch_column("redrive_take", id=id, types=texts(types), limit=limit)
        yield Statement("redrive_advance", {"id": id, "next_at": next_at})
        if (yield Statement("redrive_end", {"id": id})):
            yield Statement("redrive_clear", {"id": id})
        return ids


class EventStore:
    """Who subscribes to which event, and what nobody handles."""

    def subscriptions(self, events: Sequence[str]) -> Op[list[Subscription]]:
        """Read the subscriptions of events. One statement."""
        return fetch(Subscription, "subscription_list", events=texts(events))

    def page(self, limit: int) -> Op[list[SubscriptionRecord]]:
        """Read subscriptions of all events, by event and handler. One statement."""
        return fetch(SubscriptionRecord, "subscription_page", limit=limit)

    def subscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Register subscriptions; return the new ones, which begin where they ask for. One statement."""
        return fetch(Subscription, "subscription_insert", rows=document(subscriptions))

    def unsubscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Remove subscriptions; return those that existed. One statement."""
        return fetch(Subscription, "subscription_delete", rows=document(subscriptions))

    def keep(self, subscriptions: Sequence[Subscription]) -> Op[None]:
        """Note for how long the events of subscriptions are kept. One statement."""
        yield Statement("subscription_keep", {"rows": document(subscriptions)})

    def kept(self) -> Op[list[KeptEvent]]:
        """Read which events are kept longer than others. One statement."""
        return fetch(KeptEvent, "subscription_kept")

    def lock_replay(self, subscription: Subscription) -> Op[Replaying | None]:
        """Lock a subscription whose earlier events are being replayed; None when there is none, or another has it."""
        return fetch_one(
            Replaying,
            "subscription_replaying",
            event=subscription.event,
            handler=subscription.handler,
        )

    def mark_replayed(self, subscription: Subscription, after: str | None) -> Op[None]:
        """Note up to which event a subscription was replayed; None ends it. One statement."""
        params = {"event": subscription.event, "handler": subscription.handler, "after": after}
        yield Statement("subscription_replayed", params)

    def stored(self, event: str, after: str, until: str, look: int) -> Op[list[StoredEvent]]:
        """Read deliveries of an event among the next `look` jobs, by id, and the last one looked at. One statement."""
        return fetch(StoredEvent, "event_stored", event=event, after=after, until=until, look=look)

    def unhandled(
        self, type: str, after_ms: int, limit: int, now: Instant | None = None
    ) -> Op[list[str]]:
        """Lock and read jobs of a type that have been due for so long. One statement."""
        return fetch_column("job_unhandled", type=type, after_ms=after_ms, limit=limit, now=now)

    def waiting(self, event: str, limit: int) -> Op[list[WaitingEvent]]:
        """Lock and read events published before any subscription."""
        return fetch(WaitingEvent, "event_waiting", event=event, limit=limit)
