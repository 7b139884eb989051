"""The laws of a campaign: pure functions from the journals and the rows that are left to a verdict.

A law that is broken is evidence against the engine; a verdict without faults, or without what the faults should have
caused, is evidence of nothing and called unknown.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from holdfast_chaos.journal import FaultRecord, HandlerBegan, History, WorkerBegan

MICRO = 1_000_000
MAX_NAMED = 20
LOST_CLAIMS_S = 1.0
"""Claims this young may be lost when a server dies: they are committed without waiting for its disk."""

RESTARTED = ("kill", "deploy")
"""Faults whose worker is gone, and started again."""

EFFECT_TYPES = ("chaos.effect", "chaos.thread", "chaos.atomic")
"""Our own job types that leave a row in the transaction that completes them."""

Colour = Literal["green", "red", "unknown"]
Evidence = Literal["rows", "effects", "events"]
"""What a law may need beside the journals."""

ABSENT: Mapping[Evidence, str] = {
    "rows": "the database stayed away",
    "effects": "only our own job types write effects down",
    "events": "no events were published",
}
"""Why a law was not judged that needs it."""


class LeftJob(msgspec.Struct, frozen=True):
    """A job as the database has it after the campaign; a state only if it has ended."""

    id: str
    chain_id: str
    chain_index: int
    type: str
    state: str | None
    fence: int


class LeftEffect(msgspec.Struct, frozen=True):
    """A row that a handler wrote in the transaction that completed its job."""

    job_id: str
    fence: int


class LeftReap(msgspec.Struct, frozen=True):
    """A claim that was taken back because its lease was over, and when, by the database's clock in microseconds."""

    job_id: str
    fence: int
    at: int


class TakenEvent(msgspec.Struct, frozen=True):
    """An event of the log that the consumer wrote down in the transaction that moved its position."""

    tag: str
    key: str
    n: int


class LeftRows(msgspec.Struct):
    """What the database has after the campaign, and what breaks the laws of `holdfast verify` in it."""

    jobs: list[LeftJob] = []
    effects: list[LeftEffect] = []
    reaps: list[LeftReap] = []
    taken: list[TakenEvent] = []
    """In the order in which they were taken."""

    keys: dict[str, int] = {}
    """The number of each key's last event."""

    breaches: list[str] = []


class BrokenLaw(msgspec.Struct, frozen=True):
    """A law, how often it was broken, and the first of what broke it."""

    law: str
    text: str
    count: int
    named: list[str]


class JobRecovery(msgspec.Struct, frozen=True):
    """A job that was taken over: from its worker's death until it was due again, and until it started again.

    Both without the time in which no worker could use the database. In between it waits for its turn: a process runs
    one job at a time whose worker died. `free_seconds` is without the time after it was due in which each worker ran
    another such job, or was not up.
    """

    fault: int
    job: str
    at: float
    seconds: float
    restart_seconds: float
    free_seconds: float


class CampaignVerdict(msgspec.Struct, frozen=True):
    """The figures of a campaign, and what they amount to; None is what was not judged."""

    jobs: int | None
    failed: dict[str, int] | None
    """Jobs that failed, by type."""

    failed_by_handlers: int | None
    """Those that failed by what their handlers did, and not because workers died with them."""

    faults: dict[str, int]
    lost: int | None
    lost_by_failover: int | None
    duplicates: int
    duplicates_explained: int
    fencing_violations: int | None
    refused_zombie_writes: int
    events: int | None
    events_lost: int | None
    events_lost_by_failover: int | None
    events_twice: int | None
    events_out_of_order: int | None
    refused_lines: int | None
    recovery_p50_s: float | None
    recovery_p99_s: float | None
    restart_p50_s: float | None
    restart_p99_s: float | None
    free_restart_p99_s: float | None
    verdict: Colour
    reasons: list[str]
    broken: list[BrokenLaw]
    not_judged: dict[str, str]
    """Laws that nothing could be held against, and why."""

    charged: dict[int, int]
    recoveries: list[JobRecovery]


class Charge(NamedTuple):
    """A start that was not the first of its job, the one before it, and the fault that it is charged to."""

    before: HandlerBegan
    start: HandlerBegan
    fault: FaultRecord | None


class Case:
    """What the laws look at: journals and rows, sorted by job and chain once."""

    def __init__(self, history: History, rows: LeftRows, lease_s: float, is_own: bool) -> None:
        """`lease_s` is for how long a fault that has ended can still make a process lose a lease."""
        self.history = history
        self.rows = rows
        self.lease_s = lease_s
        self.is_own = is_own
        self.chains = {id: (each, n) for each in history.acked for id, n in each.chains.items()}
        self.starts: dict[str, list[HandlerBegan]] = defaultdict(list)
        for each in sorted(history.began, key=lambda start: (start.claimed_at, start.fence)):
            self.starts[each.job].append(each)
        self.jobs = {each.id: each for each in rows.jobs}
        self.jobs_of: dict[str, list[LeftJob]] = defaultdict(list)
        for row in rows.jobs:
            self.jobs_of[row.chain_id].append(row)
        self.effects: dict[str, list[LeftEffect]] = defaultdict(list)
        for effect in rows.effects:
            self.effects[effect.job_id].append(effect)
        self.published = {
            each.tag: (acked, each) for acked in history.events for each in acked.events
        }
        self.taken = Counter(each.tag for each in rows.taken)
        self.reaped = {(each.job_id, each.fence) for each in rows.reaps}
        self.charges = list(self._charge_starts())

    def is_lost_by_failover(self, chain: str) -> bool:
        """Whether an acknowledged chain is gone, and was acknowledged by a primary that could lose it."""
        acked, _ = self.chains[chain]
        return chain not in self.jobs_of and self._could_be_lost(acked.at)

    def is_event_lost_by_failover(self, tag: str) -> bool:
        """Whether an acknowledged event was not taken, and was acknowledged by a primary that could lose it."""
        acked, _ = self.published[tag]
        return tag not in self.taken and self._could_be_lost(acked.at)

    def _could_be_lost(self, at: float) -> bool:
        return any(fault.is_lossy and at <= fault.ended_at for fault in self.history.faults)

    def is_failed_by_handler(self, row: LeftJob) -> bool:
        """Whether a job failed in an attempt whose handler was called, and whose worker had not died."""
        is_called = any(each.fence == row.fence for each in self.starts.get(row.id, ()))
        return row.state == "failed" and is_called and (row.id, row.fence) not in self.reaped

    def _charge_starts(self) -> Iterator[Charge]:
        """Yield every start of a job that was not its first."""
        for starts in self.starts.values():
            for before, start in pairwise(starts):
                yield Charge(before, start, self._find_cause(before, start))

    def _find_cause(self, before: HandlerBegan, start: HandlerBegan) -> FaultRecord | None:
        """Find the fault of the earlier claim's process, or of all, between the two starts; a death before others."""
        # A process that was stopped between its claim and its handler starts after the one that took over.
        first, last = sorted((before.at, start.at))
        found = [
            fault
            for fault in self.history.faults
            if fault.is_charged
            and fault.actor in (None, before.actor)
            and fault.began_at <= last
            and fault.ended_at + self.lease_s >= first
        ]
        return max(
            found, key=lambda each: (each.is_death, each.is_injected, each.began_at), default=None
        )


def lost_chains(case: Case) -> Iterator[str]:
    """Yield acknowledged chains that are gone or never ended."""
    for chain in case.chains:
        if chain not in case.jobs_of:
            if not case.is_lost_by_failover(chain):
                yield f"chain {chain} was acknowledged and does not exist"
            continue
        for job in case.jobs_of[chain] if case.is_own else ():
            if job.state is None:
                yield f"job {job.id} was acknowledged and has not ended"


def undone_chains(case: Case) -> Iterator[str]:
    """Yield chains that were rolled back and exist."""
    for each in case.history.undone:
        for chain in each.chains:
            if chain in case.jobs_of:
                yield f"chain {chain} was rolled back and exists"
    for rollback in case.history.events_undone:
        for tag in rollback.tags:
            if tag in case.taken:
                yield f"event {tag} was rolled back and was taken"


def fences_back(case: Case) -> Iterator[str]:
    """Yield claims whose fence is not above that of the claim before."""
    for job, starts in case.starts.items():
        for before, start in pairwise(starts):
            if start.fence <= before.fence:
                yield f"job {job} was claimed with fence {start.fence} after {before.fence}"


def stale_writes(case: Case) -> Iterator[str]:
    """Yield jobs that ended with an older fence than that of a claim which the database has not lost."""
    for job, starts in case.starts.items():
        row = case.jobs.get(job)
        if row is None or row.state != "completed":
            continue
        newer = [each for each in starts if each.fence > row.fence and not _is_lost(case, each)]
        if newer:
            yield f"job {job} was completed with fence {row.fence} although {newer[-1].fence} was claimed"


def _is_lost(case: Case, start: HandlerBegan) -> bool:
    """Whether a server died so soon after a claim that the claim may be lost, and was never made."""
    return any(
        fault.is_crash and fault.began_at - LOST_CLAIMS_S <= start.at <= fault.ended_at
        for fault in case.history.faults
    )


def wrong_effects(case: Case) -> Iterator[str]:
    """Yield jobs whose effects are not one if they are completed, by the same claim, and none otherwise."""
    for job, row in case.jobs.items():
        effects = case.effects.get(job, [])
        wanted = 1 if row.state == "completed" and row.type in EFFECT_TYPES else 0
        if len(effects) != wanted:
            yield f"job {job} ({row.state}) has {len(effects)} effects"
        elif wanted and effects[0].fence != row.fence:
            yield f"job {job} has the effect of fence {effects[0].fence}, and was completed by {row.fence}"
    for job in case.effects.keys() - case.jobs.keys():
        yield f"job {job} has an effect and does not exist"


def unexplained_starts(case: Case) -> Iterator[str]:
    """Yield second starts that no fault explains."""
    for each in case.charges:
        if each.fault is None:
            yield (
                f"job {each.start.job} started at {each.before.at:.3f} on {each.before.actor}"
                f" and at {each.start.at:.3f} on {each.start.actor} with no fault in between"
            )


def torn_chains(case: Case) -> Iterator[str]:
    """Yield chains that have not the jobs they were to have, numbered from 0; 0 jobs stand for any number."""
    for chain, (_, length) in case.chains.items():
        rows = case.jobs_of.get(chain)
        if rows is None or any(each.state != "completed" for each in rows):
            continue
        indices = sorted(each.chain_index for each in rows)
        if indices != list(range(length or len(rows))):
            yield f"chain {chain} was to have {length or 'any'} jobs, and has those at {indices}"


def broken_rows(case: Case) -> Iterator[str]:
    """Yield what breaks the laws of rows."""
    yield from case.rows.breaches


def lost_events(case: Case) -> Iterator[str]:
    """Yield events that were committed and not taken: those acknowledged, and those that their keys have counted."""
    missed = set()
    for tag, (_, event) in case.published.items():
        if tag not in case.taken and not case.is_event_lost_by_failover(tag):
            missed.add((event.key, event.n))
            yield f"event {event.n} of {event.key} was acknowledged and not taken"
    taken = {(each.key, each.n) for each in case.rows.taken}
    for key, last in case.rows.keys.items():
        for n in range(1, last + 1):
            if (key, n) not in taken and (key, n) not in missed:
                yield f"event {n} of {key} was committed and not taken"


def repeated_events(case: Case) -> Iterator[str]:
    """Yield events that were taken more than once, each as often as it was too much."""
    seen = set()
    for each in case.rows.taken:
        if (each.key, each.n) in seen:
            yield f"event {each.n} of {each.key} was taken again"
        seen.add((each.key, each.n))


def disordered_events(case: Case) -> Iterator[str]:
    """Yield events that were taken after a later one of their key."""
    last: dict[str, int] = {}
    for each in case.rows.taken:
        if each.n < last.get(each.key, 0):
            yield f"event {each.n} of {each.key} was taken after {last[each.key]}"
        last[each.key] = max(each.n, last.get(each.key, 0))


FindBreaches = Callable[[Case], Iterator[str]]


class CampaignLaw(NamedTuple):
    """What finds the breaches of a law, what must hold, and what it needs beside the journals."""

    find: FindBreaches
    text: str
    needs: Sequence[Evidence] = ("rows",)


LAWS: Mapping[str, CampaignLaw] = {
    "acknowledged-ends": CampaignLaw(
        lost_chains, "What was acknowledged has ended once everything is drained."
    ),
    "rolled-back-is-gone": CampaignLaw(undone_chains, "What was rolled back leaves nothing."),
    "fences-grow": CampaignLaw(
        fences_back, "The fences of a job's claims strictly increase.", needs=()
    ),
    "no-stale-write": CampaignLaw(stale_writes, "No write is accepted after a newer claim."),
    "one-effect": CampaignLaw(
        wrong_effects,
        "A completed job has one effect, written in its transaction.",
        needs=("rows", "effects"),
    ),
    "starts-are-charged": CampaignLaw(
        unexplained_starts, "Each start of a job but the first is charged to a fault.", needs=()
    ),
    "whole-chains": CampaignLaw(torn_chains, "Chains are numbered without gap, to their end."),
    "events-arrive": CampaignLaw(
        lost_events,
        "Every event that was committed is taken by the consumer.",
        needs=("rows", "events"),
    ),
    "events-once": CampaignLaw(
        repeated_events, "No event is taken twice.", needs=("rows", "events")
    ),
    "events-in-order": CampaignLaw(
        disordered_events, "Events of a key are taken in their order.", needs=("rows", "events")
    ),
    "rows-keep-their-laws": CampaignLaw(
        broken_rows, "The rows keep the laws of `holdfast verify`."
    ),
}
FENCING = ("fences-grow", "no-stale-write", "one-effect")


def judge(
    history: History,
    rows: LeftRows | None,
    lease_s: float,
    *,
    is_own: bool = True,
    has_events: bool = False,
) -> CampaignVerdict:
    """Hold the journals of a campaign against what is left in the database.

    Without rows, the database is away, and what needs them is not judged. Our own jobs have all ended when nothing more
    happens. Those of a user's application may wait for a retry of theirs.
    """
    has_rows = rows is not None
    rows = rows or LeftRows()
    is_there: Mapping[Evidence, bool] = {"rows": has_rows, "effects": is_own, "events": has_events}
    case = Case(history, rows, lease_s, is_own)
    broken, not_judged = {}, {}
    for name, law in LAWS.items():
        missing = next((each for each in law.needs if not is_there[each]), None)
        if missing is not None:
            not_judged[name] = ABSENT[missing]
        elif found := list(law.find(case)):
            broken[name] = BrokenLaw(name, law.text, len(found), found[:MAX_NAMED])

    def count(law: str) -> int | None:
        """Return how often a law was broken."""
        return None if law in not_judged else broken[law].count if law in broken else 0

    counts_events = has_rows and has_events
    recoveries = list(_recoveries(case))
    seconds = [each.seconds for each in recoveries]
    restarts = [each.restart_seconds for each in recoveries]
    injected = [each for each in history.faults if each.is_injected]
    reasons = _gaps(case, injected, has_events)
    if not has_rows:
        reasons.insert(0, f"{ABSENT['rows']}, and only the journals were judged")
    charged = Counter(each.fault.number for each in case.charges if each.fault is not None)
    failed = Counter(each.type for each in rows.jobs if each.state == "failed")
    return CampaignVerdict(
        jobs=len(rows.jobs) if has_rows else None,
        failed=dict(sorted(failed.items())) if has_rows else None,
        failed_by_handlers=sum(map(case.is_failed_by_handler, rows.jobs)) if has_rows else None,
        faults=dict(sorted(Counter(each.kind for each in injected).items())),
        lost=count("acknowledged-ends"),
        lost_by_failover=sum(map(case.is_lost_by_failover, case.chains)) if has_rows else None,
        duplicates=len(case.charges),
        duplicates_explained=sum(each.fault is not None for each in case.charges),
        fencing_violations=sum(count(each) or 0 for each in FENCING) if has_rows else None,
        refused_zombie_writes=len(history.refused),
        events=len(rows.taken) if counts_events else None,
        events_lost=count("events-arrive"),
        events_lost_by_failover=sum(map(case.is_event_lost_by_failover, case.published))
        if counts_events
        else None,
        events_twice=count("events-once"),
        events_out_of_order=count("events-in-order"),
        refused_lines=len(history.lines_refused) if has_events else None,
        recovery_p50_s=percentile(seconds, 0.5),
        recovery_p99_s=percentile(seconds, 0.99),
        restart_p50_s=percentile(restarts, 0.5),
        restart_p99_s=percentile(restarts, 0.99),
        free_restart_p99_s=percentile([each.free_seconds for each in recoveries], 0.99),
        verdict="red" if broken else "unknown" if reasons else "green",
        reasons=reasons,
        broken=list(broken.values()),
        not_judged=not_judged,
        charged=dict(sorted(charged.items())),
        recoveries=recoveries,
    )


def _gaps(case: Case, injected: Sequence[FaultRecord], has_events: bool) -> list[str]:
    """Name what keeps a campaign from showing anything."""
    found = []
    if not injected:
        found.append("no fault was injected")
    if not case.chains:
        found.append("no start was acknowledged")
    if has_events and not case.published:
        found.append("no event was acknowledged")
    open_jobs = 0 if case.is_own else sum(each.state is None for each in case.rows.jobs)
    if open_jobs:
        found.append(f"{open_jobs} jobs had not ended when the time to drain was over")
    if any(each.kind == "pause" for each in injected) and not case.history.refused:
        found.append("workers were paused past their leases, and no write of theirs was refused")
    return found


def _recoveries(case: Case) -> Iterator[JobRecovery]:
    """Yield how long each job took to be due, and to start, again that was taken back from a worker that had died.

    The database's clock may be behind ours by as much as lies between a claim and its handler.
    """
    behind = min((each.at - each.claimed_at / MICRO for each in case.history.began), default=0.0)
    reaps = {(each.job_id, each.fence): each.at / MICRO + behind for each in case.rows.reaps}
    deaths: dict[str | None, list[FaultRecord]] = defaultdict(list)
    for each in sorted(case.history.faults, key=lambda fault: fault.began_at):
        if each.is_death:
            deaths[each.actor].append(each)
    lossies = [each for each in case.history.faults if each.is_lossy]
    away = _away(case.history, [])
    turns = _turns(case.history)
    for before, start, _ in case.charges:
        due = reaps.get((before.job, before.fence), -math.inf)
        fault = next((each for each in deaths[before.actor] if each.began_at >= before.at), None)
        if fault is None or fault.began_at > due:
            continue
        # What was taken back in time may be lost with an asynchronous primary, and is taken back again.
        lossy = (each.ended_at for each in lossies if fault.began_at <= each.began_at <= due)
        begin = max((fault.began_at, *lossy))
        recovered_s = due - begin - _seconds_within(begin, due, away)
        others = _away(case.history, [each for each in turns if each.job != start.job])
        yield JobRecovery(
            fault.number,
            start.job,
            start.at,
            recovered_s,
            start.at - begin - _seconds_within(begin, start.at, away),
            recovered_s + start.at - due - _seconds_within(due, start.at, others),
        )


class Outage(NamedTuple):
    """A time in which no worker could use the database, or take what another had left."""

    began_at: float
    ended_at: float


class Turn(NamedTuple):
    """A time in which a worker could take no job whose worker had died: it ran one, or was not up."""

    began_at: float
    ended_at: float
    actor: str | None
    job: str | None = None


def _turns(history: History) -> list[Turn]:
    """Return when workers ran jobs that had been claimed before, and when they were being started again."""
    ends = {(each.job, each.fence): each.at for each in history.ended}
    downs = [
        Turn(fault.began_at, _first(history.workers, fault), fault.actor)
        for fault in history.faults
        if fault.kind in RESTARTED
    ]
    found = []
    for each in history.began:
        if each.attempt > 1:
            ended = ends.get((each.job, each.fence), math.inf)
            died = (one.began_at for one in downs if one.actor == each.actor)
            ended = min(ended, *(at for at in died if at >= each.at), math.inf)
            found.append(Turn(each.at, ended, each.actor, each.job))
    return found + downs


def _first(workers: Sequence[WorkerBegan], fault: FaultRecord) -> float:
    """Return when the worker of a fault was up again; its end where no worker is left to say so."""
    found = [each.at for each in workers if each.actor == fault.actor and each.at > fault.began_at]
    return min(found, default=fault.ended_at)


def _away(history: History, turns: Sequence[Turn]) -> list[Outage]:
    """Return when the database was away, or each worker was cut off from it or had its turn."""
    spans = [Outage(each.began_at, each.ended_at) for each in history.faults if each.is_outage]
    workers = {each.actor for each in history.began}
    lines = [each for each in history.faults if each.is_cut_off and each.actor in workers]
    lost = [Turn(each.began_at, each.ended_at, each.actor) for each in lines]
    edges = sorted(
        edge
        for each in (*lost, *turns)
        for edge in ((each.began_at, 1, each.actor), (each.ended_at, -1, each.actor))
    )
    cut_off: Counter[str | None] = Counter()
    for (at, step, actor), (until, *_) in pairwise(edges):
        cut_off[actor] += step
        if all(cut_off[each] > 0 for each in workers):
            spans.append(Outage(at, until))
    return sorted(spans)


def _seconds_within(begin: float, end: float, spans: Sequence[Outage]) -> float:
    """Return how much of a time was within spans, in order, those that overlap counted once."""
    spent, reached = 0.0, begin
    for each in spans:
        low, high = max(each.began_at, reached), min(each.ended_at, end)
        if high > low:
            spent += high - low
            reached = high
    return spent


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that this share of all values does not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)
