"""Why a job is not running, in one sentence: what an operator asks first, wherever jobs are shown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.blockers import FURTHEST, circle_of
from holdfast.commands.redrives import redrive_sentence
from holdfast.core.declared_limits import DeclaredLimits, declared_in_fleet, rate_words
from holdfast.core.duration import format_span, pluralize
from holdfast.core.errors import InputUnreadable, SealBroken, SealKeyMissing, StepUnreadable
from holdfast.core.instants import Instant, to_datetime
from holdfast.core.partitions import (
    PartitionPlace,
    PartitionRule,
    PartitionState,
    by_id,
    split_partition,
)
from holdfast.core.records import (
    BlockerRecord,
    FailingJob,
    Identity,
    JobRecord,
    RedriveRecord,
    RevisionRecord,
    TypeSetting,
)
from holdfast.core.redaction import redact
from holdfast.core.retry import SUSPECTED_FROM
from holdfast.core.steps import StepRecord, is_retry, retried_step
from holdfast.core.worker_presence import GIVES_UP_AFTER, WorkerRecord
from holdfast.extensions import rows
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.limits import MAX_COUNTED

RUN_COUNTS_MS = 60_000
"""A run of a tick or cycle that gave no sign of life for longer than the usual lease has crashed."""

MAX_WORKERS = 1_000
MAX_HOLDERS = 10
"""So many of the jobs that hold a limit are named."""
MAX_WAITS = 3
"""So many of the things that a function waits for are named."""
_MAX_REASON = 200
_DAY_US = 86_400_000_000


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job is not running, in a sentence.

    `waits_for` are jobs that hold the limit it waits for, `next_permit_at` is when a rate or a rest lets the next one
    start.
    """

    sentence: str
    waits_for: Sequence[str] = ()
    next_permit_at: Instant | None = None


class PartitionView(msgspec.Struct, frozen=True):
    """Where a job of a limited type waits, and what holds there, also of all keys together, and what extensions say."""

    place: PartitionPlace
    declared: DeclaredLimits
    rule: PartitionRule
    state: PartitionState
    totals: Sequence[tuple[PartitionState, PartitionRule]] = ()
    more: JobExplanation | None = None

    @property
    def name(self) -> str:
        """What its queue is called."""
        key = split_partition(self.place.gate)[1]
        return f"{self.declared.by or 'key'} {key}" if key else self.declared.type

    @property
    def before(self) -> str:
        """Say how many are before it in its queue."""
        return f"; {_number(self.place.ahead)} ahead of it" if self.place.ahead else ""

    @property
    def rates(self) -> str:
        """Name the rates that let jobs through now and then, and how many go first."""
        rules = [(self.name, self.rule), *((split_partition(s.id)[0], r) for s, r in self.totals)]
        words = "".join(f"; at most {rate_words(rule)} for {of}" for of, rule in rules if rule.rate)
        return f"{words}{self.before}" if words else ""


class Surroundings(msgspec.Struct, frozen=True):
    """What decides about a job besides the job itself; `running` counts what the live workers hold.

    `last_error` is how the last attempt of a job ended that is to be tried again, `circle` the chains that wait for one
    another, if it is one of them, `debounce` until when it waits for quiet, `partition` where its limits hold it back,
    `unreadable_since` when code first could not read its input, `crashed_before` how many others whose worker died come
    first, `redrive` what is to re-queue a dead letter, `failing` why it has failed, if `on_failed` is to be called,
    `steps` what a parked function waits for.
    """

    now: Instant
    identity: Identity | None = None
    setting: TypeSetting | None = None
    blockers: Sequence[BlockerRecord] = ()
    workers: Sequence[WorkerRecord] = ()
    running: int = 0
    last_error: str | None = None
    circle: Sequence[str] = ()
    debounce: RevisionRecord | None = None
    partition: PartitionView | None = None
    unreadable_since: Instant | None = None
    crashed_before: int = 0
    redrive: RedriveRecord | None = None
    failing: FailingJob | None = None
    steps: Sequence[StepRecord] = ()

    def handlers(self, type: str) -> list[WorkerRecord]:
        """The live workers that handle a type and take jobs."""
        return [each for each in self.workers if type in each.types and not each.draining]


def why(job: JobRecord, around: Surroundings) -> str:
    """Say in one sentence what state a job is in and what it waits for."""
    return explain(job, around).sentence


def explain(job: JobRecord, around: Surroundings) -> JobExplanation:
    """Say what state a job is in, and what it waits for: by whom it is held back, and until when, if that is known."""
    match job.state:
        case "blocked":
            sentence = _explain_parked(around) or _explain_blocked(job, around)
            return _with_expiry(JobExplanation(sentence), job, around)
        case "pending":
            return _with_expiry(_explain_waiting(job, around), job, around)
        case "running":
            return _with_failure(JobExplanation(_explain_running(job, around)), around)
        case "completed":
            return JobExplanation(_explain_completed(job, around))
        case "failed":
            ended = f"Failed {_ago(job.finished_at, around)} {_tries(job)}"
            redrive = f"; {redrive_sentence(around.redrive)}" if around.redrive else ""
            return JobExplanation(f"{ended}{_because(job.error)}{redrive}")
        case "cancelled":
            return JobExplanation(f"Cancelled {_ago(job.finished_at, around)}{_because(job.error)}")


def _explain_waiting(job: JobRecord, around: Surroundings) -> JobExplanation:
    if around.steps and (job.available_at is None or job.available_at > around.now):
        return JobExplanation(_explain_parked(around))
    unread = _explain_unreadable(job, around)
    if unread:
        return JobExplanation(unread)
    stopped = _explain_pause(around) or _explain_unhandled(job, around)
    found = JobExplanation(stopped) if stopped else _explain_pending(job, around)
    failed = _because(around.last_error)
    is_own_error = around.failing is not None and job.attempt == around.failing.attempt
    if not failed or is_own_error:
        return _with_failure(found, around)
    sentence = f"{found.sentence}; the last attempt failed{failed}"
    return _with_failure(msgspec.structs.replace(found, sentence=sentence), around)


def _with_expiry(found: JobExplanation, job: JobRecord, around: Surroundings) -> JobExplanation:
    """Add when a job is given up that has not begun."""
    if job.expires_at is None or around.steps or around.failing is not None:
        return found
    left = max(0, job.expires_at - around.now)
    sentence = f"{found.sentence}; it expires in {format_span(left)}"
    return msgspec.structs.replace(found, sentence=sentence)


def _with_failure(found: JobExplanation, around: Surroundings) -> JobExplanation:
    """Say first that a job has failed, if only the call of its `on_failed` is left."""
    if around.failing is None:
        return found
    failed = f"Failed for good{_because(around.failing.error)}; next, on_failed is called"
    return msgspec.structs.replace(found, sentence=f"{failed}. {found.sentence}")


def look_around(store: Store, job: JobRecord) -> Op[Surroundings]:
    """Read what `why` needs to know about a job."""
    now = yield from store.schema.clock()
    if job.state == "blocked":
        blockers = yield from store.blockers.of_jobs([job.id])
        dependents = yield from store.blockers.dependents(job.chain_id, FURTHEST)
        open_chains = [each.chain_id for each in blockers if each.open]
        circle = circle_of(job.chain_id, open_chains, dependents)
        debounce = yield from _debounce(store, job)
        steps = yield from store.steps.waits_of(job.id, MAX_WAITS + 1)
        return Surroundings(now, blockers=blockers, circle=circle, debounce=debounce, steps=steps)
    if job.state not in ("pending", "running"):
        redrives = (yield from store.redrives.under_way(job.id)) if job.state == "failed" else ()
        return Surroundings(now, redrive=next(iter(redrives), None))
    identity = yield from store.schema.identity()
    settings = yield from store.workers.settings()
    workers = yield from store.workers.page(MAX_WORKERS, live=True)
    leases = yield from store.leases.page(MAX_WORKERS)
    live = {each.id for each in workers if job.type in each.types}
    last_error, unreadable_since = yield from _last_error(store, job)
    steps = (yield from store.steps.waits_of(job.id, MAX_WAITS + 1)) if job.fence else []
    has_called = any(each.kind == "run" for each in steps)
    return Surroundings(
        now,
        identity,
        next((each for each in settings if each.type == job.type), None),
        (yield from store.blockers.of_jobs([job.id])) if has_called else (),
        workers,
        sum(each.jobs for each in leases if each.worker in live),
        last_error,
        debounce=(yield from _debounce(store, job)),
        partition=(yield from _partition(store, job, workers)),
        unreadable_since=unreadable_since,
        crashed_before=(yield from _crashed_before(store, job)),
        failing=(yield from store.on_failed.of_job(job.id)),
        steps=steps,
    )


def _crashed_before(store: Store, job: JobRecord) -> Op[int]:
    if job.state != "pending" or not job.crashes:
        return 0
    return (yield from store.attempts.crashed_before(job.id))


def _partition(
    store: Store, job: JobRecord, workers: Sequence[WorkerRecord]
) -> Op[PartitionView | None]:
    """Read where a job waits, if its type is limited."""
    if job.state != "pending":
        return None
    places = yield from store.limits.place([job.id])
    if not places:
        return None
    declared = declared_in_fleet(workers).get(job.type) or DeclaredLimits(job.type)
    settings = yield from store.limits.settings(job.type)
    if any(each.id.startswith("@") for each in declared.shared):
        settings += yield from store.limits.settings()
    known = by_id(settings)
    (place,) = places
    ids = [place.gate, *(each.id for each in declared.shared)]
    states = {each.id: each for each in (yield from store.limits.states(ids, MAX_HOLDERS))}
    totals = [(states[each.id], declared.rule(each.id, known)) for each in declared.shared]
    rule = declared.rule(place.gate, known)
    more = None
    for each in rows("explanations"):
        more = more or (yield from each(store, job, declared))
    return PartitionView(place, declared, rule, states[place.gate], totals, more)


def _debounce(store: Store, job: JobRecord) -> Op[RevisionRecord | None]:
    if job.state == "running" or job.key is None:
        return None
    return (yield from store.debounce.of_job(job.id))


def _last_error(store: Store, job: JobRecord) -> Op[tuple[str | None, Instant | None]]:
    """Read how the last attempt ended, and since when a job waits for what can read it, if it ended so."""
    has_tried = job.state == "pending" and job.fence
    found = (yield from store.attempts.last_errors([job.id])) if has_tried else {}
    if (error := found.get(job.id)) is None:
        return None, None
    since = yield from store.unreadable.since(job.id, None if _is_unreadable(error) else error)
    is_told = job.attempt or since is not None or _is_unreadable(error)
    return (error if is_told else None), since


def _explain_parked(around: Surroundings) -> str:
    """Say what a parked function waits for."""
    parts = [_explain_wait(each, around) for each in around.steps[:MAX_WAITS]]
    more = [] if len(around.steps) <= MAX_WAITS else ["and more"]
    sentence = "; ".join(parts + more)
    return sentence[:1].upper() + sentence[1:]


def _explain_wait(step: StepRecord, around: Surroundings) -> str:
    until = "" if step.until is None else f" until {_moment(step.until, around.now)}"
    if step.kind == "wait":
        return f"waiting for signal {step.signal} {step.signal_key}".rstrip() + until
    if step.kind == "run":
        edges = [each for each in around.blockers if each.step == step.position]
        still = sum(each.open for each in edges)
        return f"waiting for {still} of {pluralize(len(edges), 'chain')} it called"
    if not is_retry(step):
        return f"sleeping{until}"
    error = _because(step.error).removeprefix(": ")
    soon = format_span((step.until or around.now) - around.now)
    return f"step {retried_step(step)} failed ({error}), try {step.nth + 1} in {soon}"


def _moment(at: Instant, now: Instant) -> str:
    """Write a time to come as people say it, as in "Friday 14:00 UTC"."""
    days = at // _DAY_US - now // _DAY_US
    form = "%H:%M" if days <= 0 else "%A %H:%M" if days < 7 else "%Y-%m-%d %H:%M"
    if at - now < 2 * 60_000_000:
        form += ":%S"
    return f"{to_datetime(at):{form}} UTC"


def _explain_blocked(job: JobRecord, around: Surroundings) -> str:
    if around.circle:
        chains = " waits for ".join(f"chain {each}" for each in around.circle)
        return f"Deadlock: {chains}; cancel one of them"
    open_edges = [each for each in around.blockers if each.open]
    if around.debounce is not None and open_edges:
        return f"Requested again while it ran: starts after chain {open_edges[0].chain_id} ends"
    if job.fence and not open_edges:
        return (
            "Parked, and nothing will wake it: it has no time to wait for, no signal and no chain;"
            f" cancel it, and run it again with `holdfast chains rerun {job.chain_id} --from STEP`"
        )
    count = len(around.blockers)
    sentence = f"Waiting for {len(open_edges)} of {count} chain{'' if count == 1 else 's'}"
    stuck = sum(each.state in ("failed", "cancelled") for each in open_edges)
    return f"{sentence}; {stuck} failed or cancelled" if stuck else sentence


_WAITS_FOR = {
    InputUnreadable.__name__: "Waiting for code that can read its input",
    SealKeyMissing.__name__: "Waiting for a key that opens its input",
    SealBroken.__name__: "Waiting for a key that opens its input",
}


def _is_unreadable(error: str | None) -> bool:
    return (error or "").partition(":")[0] in {*_WAITS_FOR, StepUnreadable.__name__}


def _explain_unreadable(job: JobRecord, around: Surroundings) -> str:
    due = job.available_at
    unread = around.unreadable_since is not None or _is_unreadable(around.last_error)
    if not unread or due is None or due <= around.now:
        return ""
    kind, _, text = (around.last_error or "").partition(": ")
    next_try = f"next try in {format_span(due - around.now)}"
    if kind == StepUnreadable.__name__:
        again = f"cancel it and run `holdfast chains rerun {job.chain_id} --from STEP`"
        fix = f"deploy code that fits (`holdfast explain {StepUnreadable.code}`), or {again}"
        sentence = f"Its code does not fit its records{_because(text)}; {fix}; {next_try}"
    else:
        waits_for = _WAITS_FOR.get(kind, "Its input cannot be read")
        sentence = f"{waits_for}{_because(text)}; {next_try}"
    ends_at = _gives_up_at(job, around)
    if ends_at is None:
        return sentence
    return f"{sentence}, becomes a dead letter in {format_span(ends_at - around.now)}"


def _gives_up_at(job: JobRecord, around: Surroundings) -> Instant | None:
    """Return when the first of the workers ends a job that it cannot read; None when none does."""
    waits = [each.timings.get(GIVES_UP_AFTER) for each in around.handlers(job.type)]
    known = [each for each in waits if each is not None]
    if around.unreadable_since is None or not known:
        return None
    return around.unreadable_since + min(known) * 1000


def _explain_pause(around: Surroundings) -> str:
    identity, setting = around.identity, around.setting
    if identity is not None and identity.paused:
        return f"Everything is paused{_by(identity.paused_by, identity.paused_at, around)}"
    if setting is not None and setting.paused:
        return f"Paused{_by(setting.paused_by, setting.paused_at, around)}"
    return ""


def _explain_unhandled(job: JobRecord, around: Surroundings) -> str:
    reads = [each.reads for each in around.handlers(job.type)]
    newest = max((each.get(job.type) or each.get("*", 1) for each in reads), default=0)
    if job.version <= newest:
        return ""
    if newest:
        return f"Waiting for a worker that reads version {job.version} of the input; live workers read up to {newest}"
    if any(job.type in each.types for each in around.workers):
        return f"Every live worker that handles {job.type} is draining"
    return f"No live worker handles {job.type}"


def _explain_pending(job: JobRecord, around: Surroundings) -> JobExplanation:
    if around.debounce is not None and around.debounce.due_at > around.now:
        return JobExplanation(_explain_debounce(around.debounce, around.now))
    held = _held_back(around.partition, around.now) if around.partition is not None else None
    return held or JobExplanation(_not_held_back(job, around))


def _not_held_back(job: JobRecord, around: Surroundings) -> str:
    due = job.available_at
    if due is None or due > around.now:
        when = "later" if due is None else f"in {format_span(due - around.now)}"
        return _later(job, when, around)
    waiting = format_span(around.now - due)
    slots = sum(each.slots for each in around.handlers(job.type))
    if job.crashes:
        before = f"; {around.crashed_before} ahead of it" if around.crashed_before else ""
        suspected = job.crashes >= SUSPECTED_FROM
        how = (
            "it will run alone"
            if suspected
            else "it waits for a worker that isn't running another such job"
        )
        return f"Due for {waiting}; {_deaths(job, 'its')}, so {how}{before}"
    if all(each.is_short for each in around.handlers(job.type)):
        return f"Due for {waiting}; its workers wait for database connections"
    if around.running >= slots:
        return f"Due for {waiting}; all workers are busy"
    rates = around.partition.rates if around.partition is not None else ""
    return f"Due for {waiting}{rates}; picked up at the next poll"


def _held_back(partition: PartitionView, now: Instant) -> JobExplanation | None:
    """Say which limit a job waits for; None if none holds it back."""
    place, state = partition.place, partition.state
    if state.is_paused(now):
        return _explain_rest(partition.name, state, now)
    if place.held_by is not None:
        failed = f"({place.held_by}), which failed: redrive or drop it"
        return JobExplanation(
            f"Waiting for the previous job in {partition.name} {failed}", [place.held_by]
        )
    if place.gate_at is not None and place.gate_at > now:
        return None
    if partition.declared.ordered is not None and (state.holders or place.ahead):
        running = f" ({state.holders[0]}), which is running" if state.holders else ""
        sentence = f"Waiting for the previous job in {partition.name}{running}{partition.before}"
        return JobExplanation(sentence, state.holders)
    return (
        _full(partition.name, state, partition.rule, partition.before)
        or _explain_total(partition, now)
        or _spent(partition.name, state, partition.rule, now, partition.before)
        or partition.more
        or _explain_batch(partition, now)
    )


def _explain_rest(name: str, state: PartitionState, now: Instant) -> JobExplanation:
    reason = f": {state.reason}" if state.reason else ""
    wait = format_span((state.paused_until or now) - now)
    return JobExplanation(f"{name} is paused for {wait}{reason}", next_permit_at=state.paused_until)


def _full(
    name: str, state: PartitionState, rule: PartitionRule, before: str = ""
) -> JobExplanation | None:
    if rule.allowed is None or state.running < rule.allowed:
        return None
    sentence = f"Waiting for {name}: {state.running} of {rule.allowed} running{before}"
    return JobExplanation(sentence, state.holders)


def _spent(
    name: str, state: PartitionState, rule: PartitionRule, now: Instant, before: str = ""
) -> JobExplanation | None:
    """Say when a rate lets the next one start, if it lets none start now."""
    at = state.next_start_at(rule, now)
    if at is None:
        return None
    next_start = f"the next can start in {format_span(at - now)}"
    sentence = f"Waiting for {name}: at most {rate_words(rule)}, {next_start}{before}"
    return JobExplanation(sentence, next_permit_at=at)


def _explain_total(partition: PartitionView, now: Instant) -> JobExplanation | None:
    """Say which limit of all keys holds a job back."""
    for state, rule in partition.totals:
        of = split_partition(state.id)[0]
        if state.is_paused(now):
            return _explain_rest(of, state, now)
        found = _full(of, state, rule) or _spent(of, state, rule, now)
        if found is not None:
            return found
    return None


def _explain_batch(partition: PartitionView, now: Instant) -> JobExplanation | None:
    """Say how long a job waits at most for others that are handled with it."""
    batch, next_at = partition.declared.batch, partition.place.next_at
    if batch is None or not batch.wait_ms or next_at is None or next_at <= now:
        return None
    wait = format_span(next_at - now)
    return JobExplanation(
        f"Waiting up to {wait} for more jobs of {partition.name}, for a batch of {batch.size}"
    )


def _number(number: int) -> str:
    """Counting stops somewhere."""
    return f"{number:,} or more" if number >= MAX_COUNTED else f"{number:,}"


def _explain_debounce(debounce: RevisionRecord, now: Instant) -> str:
    sentence = f"Starts in {format_span(debounce.due_at - now)}"
    if debounce.latest_at is None:
        return f"{sentence} unless requested again"
    if debounce.latest_at <= debounce.due_at:
        return f"{sentence}, its latest time"
    latest = format_span(debounce.latest_at - now)
    return f"{sentence} unless requested again, no later than in {latest}"


def _later(job: JobRecord, when: str, around: Surroundings) -> str:
    if job.crashes:
        return f"{_deaths(job)}; next attempt {when}{_alone(job)}"
    if job.attempt:
        maximum = job.max_attempts or (around.setting.max_attempts if around.setting else None)
        return f"Retry {job.attempt}{f' of {maximum - 1}' if maximum else ''} {when}"
    return f"Scheduled to start {when}"


def _deaths(job: JobRecord, its: str = "Its") -> str:
    return f"{its} worker crashed {'once' if job.crashes == 1 else f'{job.crashes} times'}"


def _alone(job: JobRecord) -> str:
    """A job that crashed its worker runs only in an idle worker, so that it takes no other job down with it."""
    return ", alone, because it crashed its worker" if job.crashes >= SUSPECTED_FROM else ""


def _explain_running(job: JobRecord, around: Surroundings) -> str:
    expires = job.lease_expires_at
    holder = job.worker or "a worker"
    if expires is None:
        return f"Leased by {holder}"
    if expires > around.now:
        leased = f"Leased by {holder}, expires in {format_span(expires - around.now)}"
        suspected = job.crashes >= SUSPECTED_FROM
        return f"{leased}; {_deaths(job, 'its')}, so it runs alone" if suspected else leased
    sentence = f"The lease of {holder} expired {_ago(expires, around)}"
    if around.workers:
        return f"{sentence}; the reaper will recover it"
    return f"{sentence}; no live worker: run `holdfast reap`"


def _explain_completed(job: JobRecord, around: Surroundings) -> str:
    sentence = f"Completed {_ago(job.finished_at, around)} {_tries(job)}"
    return f"{sentence}; the chain continued" if job.continued else sentence


def _tries(job: JobRecord) -> str:
    if job.attempt == 0:
        return "before its first attempt"
    return "on the first attempt" if job.attempt == 1 else f"after {job.attempt} attempts"


def _because(error: str | None) -> str:
    first_line = redact(error or "").strip().partition("\n")[0]
    reason = first_line.removeprefix("Cancelled").lstrip(": ")
    if len(reason) > _MAX_REASON:
        reason = f"{reason[:_MAX_REASON]}…"
    return f": {reason}" if reason else ""


def _by(who: str | None, at: Instant | None, around: Surroundings) -> str:
    return f"{f' by {who}' if who else ''}{f' {_ago(at, around)}' if at is not None else ''}"


def _ago(at: Instant | None, around: Surroundings) -> str:
    return f"{format_span(around.now - at)} ago" if at is not None else "some time ago"
