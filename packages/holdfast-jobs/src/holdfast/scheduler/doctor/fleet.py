"""Checks of the fleet: workers, their versions and types, and what no worker handles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.attempts import AHEAD_US, ahead_us
from holdfast.commands.explain import RUN_COUNTS_MS
from holdfast.commands.workers import check_lease
from holdfast.core.cycle import CycleRecord, RunRecord
from holdfast.core.duration import format_duration, format_span, pluralize
from holdfast.core.errors import ConfigError
from holdfast.core.instants import Instant
from holdfast.core.lease import Lease
from holdfast.core.records import Identity, JobRef, LeaseRecord, TypeSetting, UnreadableGroup
from holdfast.core.statistics import QueueTotals, Timeouts, TypePace, TypeTotals
from holdfast.core.steps import SignalRecord
from holdfast.core.subscriptions import SubscriptionRecord
from holdfast.core.worker_presence import WorkerRecord
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.scheduler.maintenance import unhandled_types
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

_MANY = 1_000
_MAX_NAMES = 5

PACE_MS = 300_000
STALLED_US = 120_000_000
"""Jobs that are due for so long, while workers with free slots start none of their type, are not claimed."""

TIMEOUTS_MS = 86_400_000
TIMEOUTS_LOOK = 1_000
MANY_TIMEOUTS = 3
"""So many attempts of a type that timed out within a day, among the newest failed ones, are no accident."""

UNWANTED_MS = 86_400_000
"""A signal that nobody has waited for since then was most likely sent under a wrong name or key."""


class Fleet(msgspec.Struct, frozen=True):
    """The state of the fleet at one moment; `runs` are the last ones of the cycles."""

    now: Instant
    identity: Identity | None
    workers: list[WorkerRecord]
    types: list[TypeTotals]
    totals: QueueTotals
    leases: list[LeaseRecord]
    cycles: list[CycleRecord]
    runs: list[RunRecord]
    subscriptions: list[SubscriptionRecord]
    settings: list[TypeSetting]
    ahead_us: int = 0
    unreadable: list[UnreadableGroup] = []
    paces: list[TypePace] = []
    timeouts: list[Timeouts] = []
    stranded: list[JobRef] = []
    unwanted: list[SignalRecord] = []

    @property
    def leases_in_code(self) -> dict[str, Lease]:
        """The leases that the types of the live workers set in code."""
        return {
            name: Lease(ms / 1000) for worker in self.workers for name, ms in worker.leases.items()
        }


def read_fleet(store: Store, now: Instant | None = None) -> Op[Fleet]:
    """Read everything that the checks need; nothing is written."""
    instant = (yield from store.schema.clock()) if now is None else now
    totals, types = yield from store.workers.totals(_MANY, now)
    cycles, runs = (yield from store.cycles.page(now)), list[RunRecord]()
    for each in cycles:
        runs += yield from store.runs.page(1, RUN_COUNTS_MS, each.name, now)
    return Fleet(
        now=instant,
        identity=(yield from store.schema.identity()),
        workers=(yield from store.workers.page(_MANY, live=True, now=now)),
        types=types,
        totals=totals,
        leases=(yield from store.leases.page(1)),
        cycles=cycles,
        runs=runs,
        subscriptions=(yield from store.events.page(_MANY)),
        settings=(yield from store.workers.settings()),
        ahead_us=(yield from ahead_us(store, instant)),
        unreadable=(yield from store.unreadable.groups()),
        paces=(yield from store.statistics.types(PACE_MS, now)),
        timeouts=(yield from store.statistics.timeouts(TIMEOUTS_MS, TIMEOUTS_LOOK, now)),
        stranded=(yield from store.steps.find_stranded(_MANY)),
        unwanted=(yield from store.signals.find_unwanted(UNWANTED_MS, _MANY, now)),
    )


def check_fleet(fleet: Fleet, reaper_interval_ms: int) -> list[Finding]:
    """Check what was read."""
    return [
        _check_identity(fleet.identity),
        _check_pause(fleet.identity),
        _check_workers(fleet),
        _check_versions(fleet.workers),
        _check_overrides(fleet),
        _check_unhandled(fleet),
        _check_claims(fleet),
        _check_timeouts(fleet),
        _check_subscriptions(fleet),
        _check_expired(fleet, reaper_interval_ms),
        _check_unreadable(fleet),
        _check_sealed(fleet),
        _check_stranded(fleet.stranded),
        _check_signals(fleet.unwanted),
        _check_dead_letters(fleet.totals),
        _check_cycles(fleet),
        _check_clock(fleet.ahead_us),
    ]


def _check_clock(ahead: int) -> Finding:
    if ahead <= AHEAD_US:
        return ok("clock", "no records from the future")
    return warning(
        "clock",
        f"records are {format_span(ahead)} ahead of the database's clock",
        "the clock was set back: the next tick or worker moves what the old time had dated; scheduled jobs "
        "wait for their time, and cycles for their next slot",
        "keep the server's clock in sync with NTP, and never set it back",
    )


def _check_unreadable(fleet: Fleet) -> Finding:
    groups = [each for each in fleet.unreadable if each.missing is None]
    if not groups:
        return ok("unreadable", "no jobs are waiting for code that can read their input or records")
    count = sum(each.count for each in groups)
    names = ", ".join(each.type for each in groups[:_MAX_NAMES])
    since = fleet.now - min(each.since for each in groups)
    return warning(
        "unreadable",
        f"{pluralize(count, 'job')} of {names} for {format_span(since)}",
        "the workers' code cannot read their input or does not fit their records; they wait for code that does",
        "see why with `holdfast jobs show ID`; add a default or an upgrade, and test it with "
        "`holdfast types check APP`",
    )


def _check_sealed(fleet: Fleet) -> Finding:
    groups = [each for each in fleet.unreadable if each.missing is not None]
    if not groups:
        return ok("sealed", "no jobs are waiting for a key that opens their input")
    count = sum(each.count for each in groups)
    named = _list_names([f"{each.type}, {_without_place(each.missing)}" for each in groups])
    since = fleet.now - min(each.since for each in groups)
    return warning(
        "sealed",
        f"{pluralize(count, 'job')} for {format_span(since)}: {named}",
        "the workers that took them don't have the key; they wait until a worker starts with it",
        "give the workers the key, in HOLDFAST_SEAL_KEYS; if a key was removed too early, add it back",
    )


def _without_place(missing: str | None) -> str:
    return (missing or "").partition(", which")[0]


def _check_stranded(stranded: Sequence[JobRef]) -> Finding:
    if not stranded:
        return ok("functions", "every parked function has something to wake it")
    first = stranded[0]
    return problem(
        "functions",
        f"{pluralize(len(stranded), 'function')}, the first is job {first.id} of {first.type}",
        "they are parked, and no time, signal or chain will wake them",
        f"holdfast jobs steps {first.id}; cancel it, and run it again from a step that is missing: "
        "holdfast chains rerun CHAIN --from STEP",
    )


def _check_signals(unwanted: Sequence[SignalRecord]) -> Finding:
    if not unwanted:
        return ok("signals", "no signal has waited for a day in vain")
    named = dict.fromkeys(f"{each.name} {each.key}".rstrip() for each in unwanted)
    return warning(
        "signals",
        f"{pluralize(len(unwanted), 'signal')}: {_list_names(list(named))}",
        "they were sent more than a day ago, and no function waits for them",
        "compare name and key with what functions wait for: "
        f"holdfast jobs list waiting:{unwanted[0].name}",
    )


def _check_identity(identity: Identity | None) -> Finding:
    if identity is None or identity.copied is None:
        return ok("identity", identity.name if identity else "none recorded")
    return problem(
        "identity", identity.copied, "jobs in a copied database do not run", "holdfast adopt"
    )


def _check_pause(identity: Identity | None) -> Finding:
    if identity is None or not identity.paused:
        return ok("pause", "nothing is paused globally")
    return warning(
        "pause",
        f"everything is paused{f' by {identity.paused_by}' if identity.paused_by else ''}",
        "no jobs or cycles run",
        "holdfast types resume --all",
    )


def _check_workers(fleet: Fleet) -> Finding:
    more = "+" if fleet.totals.bounded else ""
    measured = f"{len(fleet.workers)} live, {pluralize(fleet.totals.due, 'job', more)} due"
    if fleet.workers or not fleet.totals.due:
        return ok("workers", measured)
    return problem(
        "workers", measured, "jobs are due, but no worker is live", "holdfast worker APP"
    )


def _check_versions(workers: Sequence[WorkerRecord]) -> Finding:
    versions = sorted({each.version for each in workers})
    measured = ", ".join(versions) or "no workers"
    if len(versions) < 2:
        return ok("versions", measured)
    return warning(
        "versions",
        measured,
        "workers of several versions run together, which is only meant for an upgrade",
        "restart the older ones: holdfast workers list",
    )


def _check_overrides(fleet: Fleet) -> Finding:
    leases = {each.type: each.lease_ms for each in fleet.settings if each.lease_ms is not None}
    count = sum(each != TypeSetting(each.type) for each in fleet.settings)
    measured = f"{pluralize(count, 'job type')} set at run time"
    for type, lease_ms in leases.items():
        try:
            check_lease(type, lease_ms, fleet.workers)
        except ConfigError as error:
            measured = f"lease of {type} {format_duration(lease_ms)}, set at run time"
            fix = f"holdfast types set {type} --lease default; or {error.help}"
            return problem("overrides", measured, error.message, fix)
    return ok("overrides", measured)


def _check_unhandled(fleet: Fleet) -> Finding:
    waiting = unhandled_types(fleet.workers, fleet.types)
    if not waiting or not fleet.workers:
        return ok(
            "unhandled_types", "every due type has a worker" if fleet.workers else "no workers"
        )
    return problem(
        "unhandled_types",
        _list_names(waiting),
        "jobs of these types are due, but no live worker handles them",
        "start a worker that registers them: holdfast worker APP; cancel jobs whose name is a typo",
    )


def _check_claims(fleet: Fleet) -> Finding:
    paused = {each.type for each in fleet.settings if each.paused}
    moving = {each.type for each in fleet.paces if each.ended or each.running}
    limited = {name for worker in fleet.workers for name in worker.limits}
    handled = {name for each in fleet.workers if not each.draining for name in each.types}
    is_paused = fleet.identity is not None and fleet.identity.paused
    has_room = fleet.totals.running < sum(each.slots for each in fleet.workers)
    stalled = [
        each.type
        for each in fleet.types
        if each.oldest_due_at is not None
        and fleet.now - each.oldest_due_at > STALLED_US
        and each.type in handled - paused - moving - limited
    ]
    if not stalled or is_paused or not has_room:
        return ok("claims", "workers claim what is due")
    return problem(
        "claims",
        _list_names(stalled),
        "jobs are due and live workers that handle them have free slots, but start none",
        "read the workers' logs for what they wait for: holdfast workers list; then restart them",
    )


def _check_timeouts(fleet: Fleet) -> Finding:
    often = [each for each in fleet.timeouts if each.count >= MANY_TIMEOUTS]
    if not often:
        return ok("type_timeouts", "no type times out repeatedly")
    return warning(
        "type_timeouts",
        _list_names([f"{each.type}: {pluralize(each.count, 'attempt')}" for each in often]),
        "attempts were stopped because they ran longer than their type's timeout, by default three minutes",
        f'holdfast types set {often[0].type} --timeout 15m, or @app.job("{often[0].type}", timeout="15m")',
    )


def _check_subscriptions(fleet: Fleet) -> Finding:
    handled = {name for worker in fleet.workers for name in worker.types}
    idle = [each for each in fleet.subscriptions if each.job_type not in handled]
    if not idle or not fleet.workers:
        return ok("subscriptions", "each has a worker" if fleet.workers else "no workers")
    first = idle[0]
    return warning(
        "subscriptions",
        _list_names([each.job_type for each in idle]),
        "events are delivered to these handlers, but no live worker has them",
        "start a worker that has them, or, when they were removed from the code: "
        f"holdfast events unsubscribe {first.event} {first.handler}",
    )


def _check_expired(fleet: Fleet, reaper_interval_ms: int) -> Finding:
    oldest = fleet.leases[0].expires_at if fleet.leases else fleet.now
    late_ms = max(0, fleet.now - oldest) // 1000
    stuck = pluralize(fleet.totals.stuck, "job")
    measured = f"{stuck} under expired leases, the oldest for {format_span(late_ms * 1000)}"
    if late_ms <= 3 * reaper_interval_ms or not fleet.totals.stuck:
        return ok("expired_leases", measured)
    return problem(
        "expired_leases",
        measured,
        "no reaper has recovered them for three intervals",
        "holdfast reap",
    )


def _check_dead_letters(totals: QueueTotals) -> Finding:
    if not totals.failed:
        return ok("dead_letters", "none")
    return warning(
        "dead_letters",
        str(totals.failed),
        "these jobs failed and will not be retried",
        "holdfast dead list",
    )


def _check_cycles(fleet: Fleet) -> Finding:
    bad = [each for each in fleet.runs if each.outcome in ("failed", "crashed")]
    if not bad:
        return ok("cycles", f"{len(fleet.cycles)} registered")
    return warning(
        "cycles",
        _list_names([f"{each.name}: {each.outcome}" for each in bad]),
        "the last run of these cycles failed",
        f"holdfast cycles list; holdfast cycles run-now {bad[0].name}",
    )


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
