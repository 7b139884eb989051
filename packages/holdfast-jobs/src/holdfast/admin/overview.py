"""The overview: health, figures over time, readiness, the database's size, findings, and the outbox's statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.admin.access import LOCAL, Caller, Gateway, check
from holdfast.admin.serializers import plain, redact_text, rfc3339, step_starts
from holdfast.commands.change import Effect
from holdfast.commands.cycles import late_us
from holdfast.commands.explain import MAX_WORKERS, RUN_COUNTS_MS
from holdfast.commands.health import Health, read_health, summarize, type_gauges
from holdfast.commands.limits import gauges_of, read_limits
from holdfast.commands.retention import ages_of, read_progress
from holdfast.core.cycle import CycleRecord, RunRecord
from holdfast.core.ids import id_at
from holdfast.core.instants import Instant
from holdfast.core.redaction import redact
from holdfast.core.statistics import (
    STEPS_MS,
    RetentionProgress,
    SeriesPoint,
    Wait,
    WaitStep,
    Window,
    quantile,
)
from holdfast.core.worker_presence import WorkerRecord
from holdfast.observe.metrics import LimitGauges, TypeGauges
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import ServerFacts, read_server, run_checks
from holdfast.scheduler.runner import TICK, TickSkipped, is_single_tick
from holdfast.settings import Settings, effective
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.options import LARGEST_CLAIM

if TYPE_CHECKING:
    from holdfast.scheduler.tick import Tick

_VERDICTS = ("problem", "warning", "ok")

COUNTED_LIVE = 1_000
"""A page that refreshes every second counts waiting jobs only up to here, and shows when there are more."""

WAIT_LOOK = 20
"""Waiting times are measured on this many ended jobs of each step."""

MAX_TICKS = 1_000
"""Single ticks that the outbox's totals cover."""

TICKS_LOOKED_AT = 10
TICKS_MISSED = 3
FIRST_TICK_US = 3_600_000_000
"""How often ticks come shows in the last of them; after the very first, a second is waited for as long as this."""

WAITS_LAST_US = 10_000_000
"""A page that is drawn every second reads them this often: they go by the minute and cost as much as all else on it."""


class TableSize(msgspec.Struct, frozen=True):
    """One table: rows as the statistics have them, dead ones that vacuum has not removed, bytes with its indexes."""

    name: str
    rows: int
    dead: int
    bytes: int


class Sizes(msgspec.Struct, frozen=True):
    """Bytes in total, how many of them are free inside the file, the bytes of the write-ahead log, and the tables."""

    bytes: int
    free_bytes: int | None
    log_bytes: int | None
    tables: list[TableSize]


def sizes_of(document: str, path: Path | None) -> Sizes:
    """Return the database's size from what it says of itself; `path` is its file, if it has one."""
    vitals: dict[str, Any] = msgspec.json.decode(document)
    page = vitals.get("page_size")
    if page is not None:
        return Sizes(vitals["pages"] * page, vitals["free_pages"] * page, _log_bytes(path), [])
    tables = [
        TableSize(each["name"], each["live"], each["dead"], each["bytes"])
        for each in vitals["tables"]
    ]
    tables.sort(key=lambda each: -each.bytes)
    return Sizes(sum(each.bytes for each in tables), None, None, tables)


def _log_bytes(path: Path | None) -> int:
    """Return the size of the write-ahead log, which goes with the last connection."""
    log = None if path is None else path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log is not None and log.exists() else 0


class StepWait(msgspec.Struct, frozen=True):
    """How long all but the unluckiest twentieth of the jobs waited that were made in the step from `at` on."""

    at: Instant
    p95_us: int


class Waits(msgspec.Struct, frozen=True):
    """How long jobs waited, as it was read at some time."""

    read_at: Instant
    steps: list[StepWait]
    p95_us: int | None
    median_us: int | None


class Overview(msgspec.Struct, frozen=True):
    """The queue at one moment, in one sentence and in figures, and the last hours step by step."""

    health: Health
    sentence: str
    window: Window
    series: list[SeriesPoint]
    waits: list[StepWait]
    p95_wait_us: int | None
    median_wait_us: int | None


class DatabaseFigures(NamedTuple):
    """Figures of the whole database for monitors; `late_us` is of the cycles that this process's code has."""

    health: Health
    is_reaping: bool
    types: list[TypeGauges]
    limits: list[LimitGauges]
    late_us: dict[str, int]
    retention: RetentionProgress | None
    waits: dict[str, int]


class System(msgspec.Struct, frozen=True):
    """What this installation is made of."""

    dialect: str
    url: str
    migrations: list[dict[str, Any]]
    identity: dict[str, Any] | None
    sizes: Sizes
    configuration: list[dict[str, str]]
    replication: Any = None


class Overviews:
    """What can be asked about the whole."""

    def __init__(self, gateway: Gateway, settings: Settings) -> None:
        self._gateway = gateway
        self._settings = settings
        self._waits: dict[Window, Waits] = {}

    async def metrics(self, caller: Caller) -> DatabaseFigures:
        """Read the figures of the whole database for monitors."""
        return await self._gateway.read(caller, "metrics.read", self._figures)

    def _figures(self, store: Store) -> Op[DatabaseFigures]:
        health = yield from read_health(store)
        return DatabaseFigures(
            health,
            (yield from _unready(store, self._settings.outbox.reaper_interval_ms)) is None,
            (yield from type_gauges(store, health.types, health.now)),
            gauges_of((yield from read_limits(store))),
            self._lateness((yield from store.cycles.page()), health),
            (yield from read_progress(store, ages_of(self._settings))),
            (yield from store.steps.waiting()),
        )

    def _lateness(self, cycles: Sequence[CycleRecord], health: Health) -> dict[str, int]:
        known, identity = self._gateway.app.cycle_specs, health.identity
        is_paused = identity is not None and identity.paused
        return {
            each.name: 0 if is_paused else late_us(each, health.now)
            for each in cycles
            # A shard has its number after the name.
            if each.name.partition(":")[0] in known
        }

    async def get(self, caller: Caller, window: Window = "1h") -> Overview:
        """Read the health of the queue and its recent figures."""
        return await self._gateway.read(
            caller, "overview.read", lambda store: self.look(store, window)
        )

    def look(self, store: Store, window: Window, is_drawn_often: bool = False) -> Op[Overview]:
        """Read the same; for what is drawn with every change, waiting times may be some seconds old."""
        waits = self._waits.get(window) if is_drawn_often else None
        span_ms, step_ms = STEPS_MS[window]
        health = yield from read_health(store, COUNTED_LIVE)
        series = yield from store.statistics.series(span_ms, step_ms)
        if waits is None or health.now - waits.read_at >= WAITS_LAST_US:
            steps = step_starts(health.now, window)
            waits = self._waits[window] = yield from _read_waits(store, steps, health.now)
        return Overview(
            health=health,
            sentence=summarize(health),
            window=window,
            series=series,
            waits=waits.steps,
            p95_wait_us=waits.p95_us,
            median_wait_us=waits.median_us,
        )

    async def system(self, caller: Caller, server: ServerFacts | None = None) -> System:
        """Read what the database and the settings are."""
        check(caller.principal, "system.read")
        database = self._gateway.app.database
        document, replication, _ = server or await read_server(database)

        def op(store: Store) -> Op[System]:
            applied = yield from store.schema.applied()
            identity = yield from store.schema.identity()
            return System(
                dialect=store.dialect,
                url=redact(database.url),
                sizes=sizes_of(document, getattr(database, "path", None)),
                migrations=[msgspec.structs.asdict(each) for each in applied],
                identity=None
                if identity is None
                else {**plain(identity), "copied": identity.copied},
                configuration=[msgspec.structs.asdict(each) for each in effective(self._settings)],
                replication=replication,
            )

        return await self._gateway.read(caller, "system.read", op)

    async def findings(self, caller: Caller, server: ServerFacts | None = None) -> list[Finding]:
        """Run the doctor's checks, the worst first; nothing is fixed from here."""
        check(caller.principal, "doctor.read")
        app = self._gateway.app
        owners = [*app.registry, *app.cycle_specs.values()]
        found = await run_checks(app.database, self._settings, owners, server)
        ordered = sorted(found, key=lambda each: _VERDICTS.index(each.verdict))
        return [msgspec.structs.replace(each, measured=redact(each.measured)) for each in ordered]

    async def unready(self) -> str | None:
        """Return why this installation is not ready, or None. Raises: DatabaseError when it is unreachable."""
        interval_ms = self._settings.outbox.reaper_interval_ms
        return await self._gateway.read(
            Caller(LOCAL), "overview.read", lambda store: _unready(store, interval_ms)
        )


def _read_waits(store: Store, begins: range, now: Instant) -> Op[Waits]:
    ids = [id_at(at) for at in (*begins, begins[-1] + begins.step)]
    steps = [WaitStep(*step) for step in zip(begins, ids, ids[1:], strict=False)]
    found = yield from store.statistics.waits(steps, WAIT_LOOK)
    spans = sorted(each.us for each in found)
    return Waits(now, _by_step(found), quantile(spans, 0.95), quantile(spans, 0.5))


def _unready(store: Store, interval_ms: int) -> Op[str | None]:
    """A reaper lives with every worker and in every tick; one that works leaves no lease expired for long."""
    now: Instant = yield from store.schema.clock()
    patience_us = 3 * interval_ms * 1000
    living = yield from store.workers.page(1, live=True)
    if not living:
        ticks_us = yield from _patience_with_ticks(store, now)
        if ticks_us is None:
            return "no live worker, and no reaper has run for three intervals"
        patience_us = max(patience_us, ticks_us)
    leases = yield from store.leases.page(1)
    if leases and now - leases[0].expires_at > patience_us:
        return "leases have expired and no worker reaps them"
    return None


def _patience_with_ticks(store: Store, now: Instant) -> Op[int | None]:
    """How long single ticks may be silent, by how often they came; None when none is to be expected any more.

    An installation that only ticks is as ready between two ticks as in them. One whose worker has gone missing since
    the last of them is not.
    """
    runs = yield from store.runs.page(TICKS_LOOKED_AT, RUN_COUNTS_MS, TICK)
    starts = sorted((each.started_at for each in runs if is_single_tick(each.worker)), reverse=True)
    if not starts:
        return None
    pauses = [later - earlier for later, earlier in pairwise(starts)]
    patience_us = TICKS_MISSED * max(pauses) if pauses else FIRST_TICK_US
    patience_us = max(patience_us, RUN_COUNTS_MS * 1000)
    everyone = yield from store.workers.page(MAX_WORKERS)
    went_missing = any(each.stopped_at is None and each.seen_at > starts[0] for each in everyone)
    return None if went_missing or now - starts[0] > patience_us else patience_us


def _by_step(waits: Sequence[Wait]) -> list[StepWait]:
    found: dict[Instant, list[int]] = defaultdict(list)
    for each in waits:
        found[each.at].append(each.us)
    return [
        StepWait(at, p95)
        for at, spans in sorted(found.items())
        if (p95 := quantile(sorted(spans), 0.95)) is not None
    ]


class LegacyStats:
    """Statistics of the outbox under its first names, and ticks in this process."""

    def __init__(self, gateway: Gateway, settings: Settings) -> None:
        self._gateway = gateway
        self._settings = settings

    @cached_property
    def _tick(self) -> Tick:
        app = self._gateway.app
        handled = [each.name for each in app.registry if each.handler is not None]
        return app.assembly(self._settings, types=handled).tick()

    async def close(self) -> None:
        """Let a running tick end within its grace period and release its connection."""
        if "_tick" in vars(self):
            await self._tick.close(self._settings.worker.shutdown_timeout_ms / 1000)

    async def stats(self, caller: Caller) -> dict[str, Any]:
        """Read queue, runtime and configuration; running shows as processing and completed as sent."""
        return await self._gateway.read(caller, "outbox.stats", self._read)

    async def run_once(self, caller: Caller) -> dict[str, Any]:
        """Run one tick in this process, unless one is running."""
        check(caller.principal, "outbox.run_once")
        answer = await self._tick.run_once()
        if isinstance(answer, TickSkipped):
            return {"skipped": True, "reason": answer.reason}
        effect = Effect(f"run {answer.run_id}", None, {"processed": answer.total_processed})
        await self._gateway.record(caller, "outbox.run_once", effect)
        return {"summary": answer.as_dict()}

    def _read(self, store: Store) -> Op[dict[str, Any]]:
        health = yield from read_health(store)
        totals = health.totals
        workers = yield from store.workers.page(MAX_WORKERS, live=True)
        ticks = yield from store.runs.page(MAX_TICKS, RUN_COUNTS_MS, TICK)
        return {
            "generated_at": rfc3339(health.now),
            "queue": {
                "total": totals.live + totals.completed + totals.failed + totals.cancelled,
                "due_now": totals.due,
                "due_now_is_a_lower_bound": totals.bounded,
                "oldest_pending_age_seconds": health.oldest_us / 1_000_000,
                "stuck_processing": totals.stuck,
                "pending": max(0, totals.live - totals.running),
                "processing": totals.running,
                "sent": totals.completed,
                "failed": totals.failed,
            },
            "runtime": _runtime(workers, ticks),
            "config": self._config(),
        }

    def _config(self) -> dict[str, int]:
        worker = self._settings.embedded
        names = (
            "poll_ms",
            "max_attempts",
            "processing_timeout_ms",
            "retry_base_ms",
            "retry_max_ms",
        )
        config: dict[str, int] = {name: getattr(worker, name) for name in names}
        return config | {"batch_size": worker.batch_size or LARGEST_CLAIM}


def _runtime(workers: list[WorkerRecord], ticks: list[RunRecord]) -> dict[str, Any]:
    """Sum up what the live workers did since their start, and the last single ticks, by hand or by cron."""
    single = [each for each in ticks if is_single_tick(each.worker)]
    counted = [each.counters for each in workers]
    counted += [each.counters.get("counters", {}) for each in single]

    def total(counter: str) -> int:
        return sum(each.get(counter, 0) for each in counted)

    errors = [(each.seen_at, each.last_error) for each in workers]
    errors += [(each.started_at, each.counters.get("last_error")) for each in single]
    _, last_error = max(((at, text) for at, text in errors if text), default=(0, None))
    return {
        "is_running": bool(workers),
        "ticks_total": total("ticks"),
        "processed_total": total("processed"),
        "retried_total": total("retried"),
        "dead_letter_total": total("dead_letters"),
        "recovered_stuck_total": total("recovered"),
        "last_error": redact_text(last_error),
    }
