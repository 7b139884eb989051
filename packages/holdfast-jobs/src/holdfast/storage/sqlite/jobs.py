"""Jobs and chains in SQLite: the operations that are one statement in PostgreSQL and several here.

A claim polls each queue, a type at a priority, then marks, leases and reads the jobs. A flush writes outcomes by kind,
gives attempts back, and appends history, successors and counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.partitions import LimitedAnswer, LimitedClaim
from holdfast.core.records import (
    DEFAULT_PRIORITY,
    Claim,
    ClaimedJob,
    ClosedEdge,
    EndedJob,
    Ending,
    Finish,
    Finished,
    FinishKind,
    Held,
    JobRef,
    NewJob,
    Probe,
    Settled,
    State,
    TerminalState,
)
from holdfast.storage.operation import Op, Row, Statement, Value
from holdfast.storage.sqlite.limits import (
    NEVER,
    claim_limited,
    pause_partitions,
    signal_leaving,
    signal_placed,
    signal_returned,
)
from holdfast.storage.sqlite.tally import Tally, page_params
from holdfast.storage.store.chains import BlockerStore, ChainStore
from holdfast.storage.store.jobs import DebounceStore, JobStore, OnFailedStore, split_drops
from holdfast.storage.store.pagination import JobQuery
from holdfast.storage.store.params import document, lists, records_of, resolve_now, texts

READ_AT_ONCE = 200
"""So many inputs of the largest size, escaped, still fit into one text."""

_ENDS: dict[FinishKind, TerminalState] = {
    "complete": "completed",
    "continue": "completed",
    "fail": "failed",
    "cancel": "cancelled",
}

# What one statement says once for all its rows: kind, worker, token, and whether there is no error to write.
_Alike = tuple[FinishKind, str, str, bool]


class SqliteJobStore(JobStore):
    """Jobs, claimed and ended in several statements."""

    def insert(
        self, jobs: Sequence[NewJob], channel: str | None = None, now: Instant | None = None
    ) -> Op[set[str]]:
        # There is no channel to notify on: other processes watch the file itself.
        rows = yield _insert_statement(jobs, now)
        written = {row[0] for row in rows}
        yield from queue_jobs([each for each in jobs if each.id in written])
        tally = Tally()
        for type, number in Counter(row[1] for row in rows).items():
            tally.of(type).started = number
        yield from tally.write(now)
        return written

    def insert_new(self, job: NewJob, channel: str | None = None) -> Op[None]:
        yield from super().insert_new(job)
        if job.gate is None and job.version is None and job.context is None:
            yield Statement("job_insert_new_queue", {"id": job.id})
            yield Statement("tally_add_started", {"type": job.type, "now": None})

    def claim(self, claim: Claim, now: Instant | None = None) -> Op[list[ClaimedJob]]:
        # The write lock is held from the first poll on.
        now = yield from resolve_now(now)
        due = yield from _find_due(claim, now)
        if not due:
            return []
        held: dict[str, list[str]] = {}
        for _, id, _, token in due:
            held.setdefault(token, []).append(id)
        classes = {each.token: each for each in claim.classes}
        for token, ids in held.items():
            taken: dict[str, Value] = {"token": token, "ids": texts(ids), "now": now}
            yield Statement("job_claim_take", taken)
            policy = msgspec.structs.asdict(classes[token])
            yield Statement("job_claim_lease", {**policy, **taken, "worker": claim.worker})
        jobs: list[ClaimedJob] = []
        for first in range(0, len(due), READ_AT_ONCE):
            named = texts(row[1] for row in due[first : first + READ_AT_ONCE])
            rows = yield Statement("job_claim_read", {"ids": named, "now": now})
            jobs += [ClaimedJob(*row) for row in lists(rows[0][0])]
        return jobs

    def claim_limited(self, claim: LimitedClaim, now: Instant | None = None) -> Op[LimitedAnswer]:
        return claim_limited(claim, now)

    def finish(
        self,
        finishes: Sequence[Finish],
        freed: Sequence[str] = (),
        awaited: bool = False,
        now: Instant | None = None,
    ) -> Op[list[Finished]]:
        now = yield from resolve_now(now)
        tally = Tally()
        done: list[Finished] = []
        if not awaited and any(each.drop for each in finishes):
            drops, finishes = split_drops(finishes)
            done += yield from _drop(drops, now)
        for batch in _once_per_job(finishes):
            for alike, group in _group_alike(batch).items():
                done += yield from _end_attempts(alike, group, awaited, now, tally)
            back = [each for each in batch if each.kind not in _ENDS]
            if back:
                done += yield from _give_back(back, awaited, now, tally)
        if freed:
            yield Statement("lease_drop", {"tokens": texts(freed)})
        yield from tally.write(now)
        return done

    def end(self, endings: Sequence[Ending], now: Instant | None = None) -> Op[list[EndedJob]]:
        now = yield from resolve_now(now)
        rows = yield Statement("job_end_read", {"ids": texts(each.id for each in endings)})
        if not rows:
            return []
        yield from signal_leaving([row[0] for row in rows], now)
        yield Statement("job_end", {"rows": document(endings), "now": now})
        yield Statement("queue_drop", {"ids": texts(row[0] for row in rows)})
        tally = Tally()
        given = {each.id: each for each in endings}
        for row in rows:
            if given[row[0]].fanned_out:
                tally.of(row[2]).started -= 1
            else:
                tally.of(row[2]).end(given[row[0]].state)
        successors = [
            (job, bool(row[5])) for row in rows if (job := given[row[0]].next) is not None
        ]
        yield from write_successors(successors, now, tally)
        yield from tally.write(now)
        return records_of(EndedJob, rows)

    def redrive(
        self, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
    ) -> Op[list[JobRef]]:
        given = {"ids": texts(ids)}
        yield Statement("on_failed_forget", given)
        taken = yield Statement("job_redrive", given)
        undone = yield Statement("step_undo", {"ids": texts(row[0] for row in taken)})
        if undone:
            yield Statement("step_unbind", {"rows": document(undone)})
        return (yield from _requeue(taken, spacing_us, now))

    def trigger(self, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        now = yield from resolve_now(now)
        rows = yield Statement("job_trigger", {"ids": texts(ids), "now": now})
        return (yield from signal_returned(rows, now))

    def _page_params(self, query: JobQuery) -> dict[str, Value]:
        return page_params(query)


def _requeue(taken: Sequence[Row], spacing_us: int, now: Instant | None) -> Op[list[JobRef]]:
    """Give jobs that were taken from the outcomes their live rows again."""
    rows = sorted(taken)
    if not rows:
        return []
    spread = document([(id, *more) for id, _, *more in rows])
    yield Statement("job_redrive_queue", {"rows": spread, "spacing_us": spacing_us, "now": now})
    tally = Tally()
    for row in rows:
        tally.of(row[1]).failed -= 1
    yield from tally.write(now)
    return (yield from signal_returned([(id, type, gate) for id, type, _, gate, *_ in rows]))


def _insert_statement(jobs: Sequence[NewJob], now: Instant | None) -> Statement:
    """The statement that writes jobs; a start of one or of many alike takes the straightest way."""
    kinds = {(each.type, each.priority) for each in jobs}
    if len(kinds) != 1 or not all(map(_is_plain, jobs)):
        return Statement("job_insert", {"rows": document(jobs), "now": now})
    ((type, priority),) = kinds
    inputs = document({each.id: each.input for each in jobs})
    return Statement(
        "job_insert_alike", {"inputs": inputs, "type": type, "priority": priority, "now": now}
    )


def _is_plain(job: NewJob) -> bool:
    """Whether a job is the first of its chain and has nothing but its type, priority and input."""
    return job == NewJob(
        job.id,
        job.id,
        job.type,
        job.input,
        priority=job.priority,
        gate=job.gate,
        ordered=job.ordered,
    )


def queue_jobs(jobs: Sequence[NewJob], awaited: bool = False) -> Op[None]:
    """Give jobs that were just written their live rows."""
    ids = [each.id for each in jobs]
    if any(each.gate is not None for each in jobs):
        rows = document([(each.id, each.gate, each.ordered) for each in jobs])
        yield Statement("limit_insert_queue", {"rows": rows, "awaited": awaited})
        yield from signal_placed(ids)
    elif ids:
        yield Statement("job_insert_queue", {"ids": texts(ids), "awaited": awaited})


def _find_due(claim: Claim, now: Instant) -> Op[list[Row]]:
    """Find the most urgent jobs, at most one of them a job that has crashed before.

    Queues of one priority are polled in order, each for its share and then for the rest, until there are enough.
    """
    chosen: list[Row] = []
    left = {probe.type: probe.max for probe in claim.probes if probe.max is not None}
    queues = yield from _queues(claim.probes)
    for _, level in groupby(sorted(queues, key=itemgetter(0)), itemgetter(0)):
        found: list[Row] = []
        for priority, probe, passed, wanted in _polls(level):
            wanted = min(
                wanted, left.get(probe.type, wanted), claim.limit - len(chosen) - len(found)
            )
            rows = yield from _poll_queue(probe, priority, passed, wanted, claim.allow_crashed, now)
            if probe.type in left:
                left[probe.type] -= len(rows)
            found += rows
        chosen += sorted(found)
        # Priorities are strict: what the less urgent probes would find could not be taken any more.
        if len(chosen) >= claim.limit:
            break
    crashed = [row for row in chosen if row[2]]
    return [row for row in chosen if not row[2] or row is crashed[0]]


def _queues(probes: Sequence[Probe]) -> Op[list[tuple[int, Probe]]]:
    """Leave out the queues without live jobs: most types have them at one priority, if at all."""
    if len(probes) == 1 and probes[0].priority is not None:
        return [(probes[0].priority, probes[0])]
    types = texts({probe.type for probe in probes})
    found: dict[str, list[int]] = {}
    for type, priority in (yield Statement("job_claim_queues", {"types": types})):
        found.setdefault(type, []).append(priority)
    return [
        (priority, probe)
        for probe in probes
        for priority in found.get(probe.type, ())
        if probe.priority in (None, priority)
    ]


def _polls(level: Iterable[tuple[int, Probe]]) -> Iterator[tuple[int, Probe, int, int]]:
    """Yield (priority, probe, how many to pass over, how many to take): the shares of all, then what they leave."""
    shared: list[tuple[int, Probe, int]] = []
    for priority, probe in level:
        share = probe.room if probe.share is None else min(probe.share, probe.room)
        yield priority, probe, 0, share
        if share < probe.room:
            shared.append((priority, probe, share))
    for priority, probe, share in shared:
        yield priority, probe, share, probe.room - share


def _poll_queue(
    probe: Probe, priority: int, passed: int, wanted: int, allow_crashed: bool, now: Instant
) -> Op[list[Row]]:
    if wanted <= 0:
        return []
    rows = yield Statement(
        "job_claim_poll",
        {
            **msgspec.structs.asdict(probe),
            "priority": priority,
            "passed": passed,
            "wanted": wanted,
            "allow_crashed": allow_crashed,
            "now": now,
        },
    )
    return lists(rows[0][0])


def _once_per_job(finishes: Sequence[Finish]) -> Iterator[Sequence[Finish]]:
    """Split so that an id tells which finish it is: a lost attempt and the next one may arrive together."""
    while finishes:
        first: dict[str, Finish] = {}
        again = [each for each in finishes if first.setdefault(each.id, each) is not each]
        yield list(first.values())
        finishes = again


def _group_alike(batch: Sequence[Finish]) -> dict[_Alike, list[Finish]]:
    """Group the finishes that end a job by the statement they need."""
    groups: dict[_Alike, list[Finish]] = {}
    for each in batch:
        if each.kind in _ENDS:
            is_plain = (
                each.kind in ("complete", "continue")
                and each.error is None
                and each.fingerprint is None
            )
            groups.setdefault((each.kind, each.worker, each.token, is_plain), []).append(each)
    return groups


def _end_attempts(
    alike: _Alike, group: Sequence[Finish], awaited: bool, now: Instant, tally: Tally
) -> Op[list[Finished]]:
    kind, worker, token, is_plain = alike
    named = texts(each.id for each in group)
    proof: dict[str, Value] = {"ids": named, "token": token, "awaited": awaited}
    rows = lists((yield Statement("job_finish_held", proof))[0][0])
    if not rows:
        return []
    hits = {row[0] for row in rows}
    yield Statement(
        "job_finish_end" if is_plain else "job_finish_error",
        {
            "rows": document(
                {each.id: _columns_of(each, is_plain) for each in group if each.id in hits}
            ),
            "state": _ENDS[kind],
            "continued": kind == "continue",
            "worker": worker,
            "now": now,
        },
    )
    ids = texts(row[0] for row in rows)
    waited_for: set[str] = set()
    if awaited:
        waited_for = {row[0] for row in (yield Statement("queue_awaited", {"ids": ids}))}
    if any(each.gate is not None for each in group):
        yield from signal_leaving([row[0] for row in rows], now)
    yield Statement("queue_drop", {"ids": ids})
    for type, number in Counter(row[1] for row in rows).items():
        tally.of(type).end(_ENDS[kind], number)
    if kind == "fail":
        yield from _keep_history(group, rows, now)
    if kind == "continue":
        successors = [
            (each.next, each.id in waited_for)
            for each in group
            if each.id in hits and each.next is not None
        ]
        yield from write_successors(successors, now, tally)
    return [Finished(row[0], row[1], row[0] in waited_for) for row in rows]


def _drop(group: Sequence[Finish], now: Instant) -> Op[list[Finished]]:
    """Complete chains of one job that are not kept."""
    by_token: dict[str, list[str]] = {}
    for each in group:
        by_token.setdefault(each.token, []).append(each.id)
    done: list[Finished] = []
    for token, ids in by_token.items():
        proof: dict[str, Value] = {"ids": texts(ids), "token": token, "awaited": False}
        rows = lists((yield Statement("job_finish_held", proof))[0][0])
        done += [Finished(id, type, False) for id, type, *_ in rows]
    yield from SqliteChainStore().delete([each.id for each in done], now)
    return done


def _columns_of(finish: Finish, is_plain: bool) -> tuple[object, ...]:
    said = (finish.started_at, finish.output)
    return said if is_plain else (*said, finish.error, finish.fingerprint)


def _give_back(
    group: Sequence[Finish], awaited: bool, now: Instant, tally: Tally
) -> Op[list[Finished]]:
    parked = {each.id: each.ignores for each in group if each.kind == "park"}
    due: set[str] = set()
    if parked:
        waits = document(list(parked.items()))
        rows = yield Statement("step_may_go_on", {"rows": waits, "now": now})
        due = {row[0] for row in rows}
    returns = [
        (
            each.id,
            each.token,
            0 if each.kind == "retry" else 1,
            now if each.id in due else _returns_at(each, now),
            each.kind == "park",
        )
        for each in group
    ]
    rows = yield Statement(
        "job_finish_return", {"rows": document(returns), "awaited": awaited, "now": now}
    )
    queued = [row[0] for row in rows if row[5] is not None]
    if queued:
        yield from signal_placed(queued, now)
        if parked:
            # Those may have no place in their queue.
            yield from signal_leaving([each for each in queued if each in parked], now)
        yield from pause_partitions(group, rows, now)
    yield from _keep_history(group, rows, now)
    retried = {each.id for each in group if each.kind == "retry"}
    for row in rows:
        if row[0] in retried:
            tally.of(row[1]).retried += 1
    return [Finished(row[0], row[1], bool(row[4])) for row in rows]


def _returns_at(finish: Finish, now: Instant) -> Instant | None:
    """When an attempt that is given back is due again, None for where it was."""
    match finish.kind:
        case "release":
            return None
        case "park":
            return NEVER if finish.until is None else finish.until
        case _:
            return now + finish.delay_ms * 1000


def _keep_history(group: Sequence[Finish], rows: Sequence[Row], now: Instant) -> Op[None]:
    """Keep the attempts that failed; a release, a park, and a snooze without an error leave no trace."""
    given = {each.id: each for each in group}
    history = []
    for id, _, attempt, fence, *_ in rows:
        each = given[id]
        if each.kind in ("release", "park") or (each.kind == "snooze" and each.error is None):
            continue
        # A snooze refunds its attempt, but it is remembered under the number that ran.
        ran = attempt + (each.kind == "snooze")
        history.append((id, fence, ran, each.kind, each.worker, each.started_at, each.error))
    if history:
        yield Statement("attempt_add", {"rows": document(history), "now": now})


def write_successors(
    successors: Sequence[tuple[NewJob, bool]], now: Instant, tally: Tally
) -> Op[None]:
    """Continue chains; each successor is awaited if the job that it follows was."""
    if not successors:
        return
    yield Statement("job_continue", {"rows": document([job for job, _ in successors]), "now": now})
    yield from queue_jobs([job for job, awaited in successors if not awaited])
    yield from queue_jobs([job for job, awaited in successors if awaited], awaited=True)
    for job, _ in successors:
        tally.of(job.type).started += 1


class SqliteChainStore(ChainStore):
    """Chains, deleted in several statements."""

    def _page_params(self, query: JobQuery) -> dict[str, Value]:
        return page_params(query)

    def delete(
        self, chain_ids: Sequence[str], now: Instant | None = None, keep_keys: bool = False
    ) -> Op[list[str]]:
        given = {"chains": texts(chain_ids)}
        tally = Tally()
        left: list[tuple[str, int, Instant, str]] = []
        now = yield from resolve_now(now)
        for type, priority, gate in (yield Statement("chain_delete_queue", given)):
            tally.of(type).removed += 1
            left += [(type, priority, now, gate)] if gate is not None else []
        for type, state, gate, is_fanned_out in (yield Statement("chain_delete_outcomes", given)):
            if not is_fanned_out:
                count = tally.of(type)
                count.removed += 1
                count.end(state, -1)
            # An ordered queue may wait for the failed job that is dropped here.
            left += [(type, DEFAULT_PRIORITY, now, gate)] if gate is not None else []
        if left:
            yield Statement("limit_signal", {"rows": document(list(dict.fromkeys(left)))})
        yield Statement("chain_delete_failing", given)
        yield Statement("chain_delete_attempts", given)
        yield Statement("chain_delete_progress", given)
        yield Statement("chain_delete_revisions", given)
        yield Statement("chain_delete_steps", given)
        yield Statement("chain_delete_output", given)
        yield Statement("chain_delete_blockers", given)
        yield Statement("chain_delete_keys", {**given, "keep_keys": keep_keys})
        if keep_keys:
            yield Statement("chain_outlive", {**given, "now": now})
        rows = yield Statement("chain_delete", given)
        yield from tally.write(now)
        return [row[0] for row in rows]


class SqliteBlockerStore(BlockerStore):
    """Blockers, whose policy is read here when an edge closes."""

    def close(self, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        pairs = [{"chain_id": chain_id, "state": state} for chain_id, state in ended]
        rows = yield Statement("blocker_close", {"rows": document(pairs)})
        # RETURNING sees only the edge, so what its chain ended as is looked up here.
        states = dict(ended)
        return [
            ClosedEdge(job_id, chain_id, bool(fails) and states[chain_id] != "completed", step)
            for job_id, chain_id, fails, step in rows
        ]

    def open_jobs(self, job_ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        rows = yield Statement("blocker_open_jobs", {"ids": texts(job_ids), "now": now})
        return (yield from signal_returned(rows))


class SqliteOnFailedStore(OnFailedStore):
    """Failed jobs, taken back in several statements."""

    def defer(self, ids: Sequence[str], tries: int, now: Instant | None = None) -> Op[list[JobRef]]:
        marked = yield Statement("on_failed_mark", {"ids": texts(ids), "tries": tries})
        marked_ids = {row[0] for row in marked}
        others = [each for each in ids if each not in marked_ids]
        if others:
            yield Statement("on_failed_unremember", {"ids": texts(others)})
            yield Statement("on_failed_settle", {"ids": texts(others)})
        if not marked:
            return []
        taken = yield Statement("on_failed_defer", {"ids": texts(sorted(marked_ids))})
        return (yield from _requeue(taken, 0, now))


class SqliteDebounceStore(DebounceStore):
    """Revisions; the write lock keeps what was read true."""

    def settle(self, pairs: Sequence[Held], now: Instant | None = None) -> Op[list[Settled]]:
        now = yield from resolve_now(now)
        rows = yield Statement("revision_newest", {"rows": document(pairs)})
        put_off = [
            (id, due_at) for id, input, due_at, _ in rows if input is not None and due_at > now
        ]
        if put_off:
            yield Statement("revision_put_off", {"rows": document(put_off)})
        waiting = {id for id, _ in put_off}
        final = {id: input for id, input, _, _ in rows if input is not None and id not in waiting}
        if final:
            yield Statement("revision_final", {"ids": texts(final)})
            yield Statement("revision_version", {"ids": texts(final)})
            yield Statement("revision_drop", {"ids": texts(final)})
        return [Settled(id, final.get(id), id in waiting, version) for id, _, _, version in rows]
