"""The queue's status: figures for every surface and for monitors, and a one-sentence summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.commands.explain import MAX_WORKERS
from holdfast.commands.limits import partition_words
from holdfast.core.duration import format_span
from holdfast.core.instants import Instant
from holdfast.core.partitions import LimitSetting
from holdfast.core.records import Identity, TypeSetting
from holdfast.core.statistics import QueueTotals, TypeTotals
from holdfast.observe.metrics import TypeGauges
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

COUNTED = 10_000
"""Live counts stop here: beyond it the exact number changes no decision."""

COUNTED_OF_TYPE = 1_000
"""Due jobs of one type are counted up to here: there may be hundreds of types."""

MAX_PAUSED_KEYS = 100

LATE_US = 60_000_000
"""The summary mentions a due job that has waited longer than this."""


class Health(msgspec.Struct, frozen=True):
    """The queue at one moment.

    `silent` workers stopped sending heartbeats without shutting down; `unhandled` types have due jobs but no live
    worker; `paused` has the settings of the types that are paused one by one, `paused_keys` of keys and shared limits
    that let nothing through for a while; `unreadable` jobs wait for code that can read their input; `short` workers
    wait for connections that the server does not have.
    """

    now: Instant
    totals: QueueTotals
    types: Sequence[TypeTotals]
    workers: int
    slots: int
    silent: int
    unhandled: Sequence[str]
    identity: Identity | None
    paused: Sequence[TypeSetting] = ()
    paused_keys: Sequence[LimitSetting] = ()
    unreadable: int = 0
    short: int = 0

    @property
    def oldest_us(self) -> int:
        """How long the oldest due job has waited."""
        due = self.totals.oldest_due_at
        return 0 if due is None else max(0, self.now - due)

    @property
    def later(self) -> int | None:
        """How many pending jobs are not due yet; unknown where not all that are due or blocked were counted."""
        totals = self.totals
        if totals.bounded:
            return None
        return max(0, totals.live - totals.blocked - totals.running - totals.due)

    def figures(self) -> dict[str, Any]:
        """Return the figures for programs, under the names that every surface uses.

        `bounded` says that `due`, `blocked` and `stuck` are lower bounds: counting stopped.
        `unreadable` is counted as far.
        """
        totals = self.totals
        return {
            "live": totals.live,
            "due": totals.due,
            "later": self.later,
            "running": totals.running,
            "blocked": totals.blocked,
            "stuck": totals.stuck,
            "bounded": totals.bounded,
            "oldest_due_seconds": round(self.oldest_us / 1_000_000, 3),
            "completed": totals.completed,
            "failed": totals.failed,
            "cancelled": totals.cancelled,
            "workers": self.workers,
            "slots": self.slots,
            "silent": self.silent,
            "unhandled": list(self.unhandled),
            "paused_types": [each.type for each in self.paused],
            "paused_keys": [partition_words(each.id) for each in self.paused_keys],
            "unreadable": self.unreadable,
            "short": self.short,
        }

    def words(self) -> dict[str, str]:
        """Return the main figures for people, under the same names; a lower bound has a plus."""
        totals, more = self.totals, "+" if self.totals.bounded else ""
        unread = {"unreadable": f"{self.unreadable:,}"} if self.unreadable else {}
        return {
            "due": f"{totals.due:,}{more}",
            "running": f"{totals.running:,}",
            "blocked": f"{totals.blocked:,}{more}",
            "later": "unknown" if self.later is None else f"{self.later:,}",
            "completed": f"{totals.completed:,}",
            "cancelled": f"{totals.cancelled:,}",
            "failed": f"{totals.failed:,}",
            **unread,
            "workers": f"{self.workers:,}",
        }


def read_health(store: Store, counted: int | None = None) -> Op[Health]:
    """Read the queue's status, cheaply at any size; live counts stop at `counted`, by default at COUNTED."""
    counted = COUNTED if counted is None else counted
    now = yield from store.schema.clock()
    totals, types = yield from store.workers.totals(counted)
    everyone = yield from store.workers.page(MAX_WORKERS)
    identity = yield from store.schema.identity()
    settings = yield from store.workers.settings()
    # Those that are gone may be newer, and more than a page of them.
    living = yield from store.workers.page(MAX_WORKERS, live=True)
    handled = {type for each in living for type in each.types}
    return Health(
        now=now,
        totals=totals,
        types=types,
        workers=len(living),
        slots=sum(each.slots for each in living),
        silent=sum(each.stopped_at is None and not each.is_live(now) for each in everyone),
        unhandled=[
            each.type
            for each in types
            if each.oldest_due_at is not None and each.type not in handled
        ],
        identity=identity,
        paused=[each for each in settings if each.paused],
        paused_keys=(yield from store.limits.paused(MAX_PAUSED_KEYS)),
        unreadable=(yield from store.unreadable.count(counted)),
        short=sum(each.is_short for each in living),
    )


def type_gauges(store: Store, types: Sequence[TypeTotals], now: Instant) -> Op[list[TypeGauges]]:
    """Read how much of each type is due, and for how long."""
    waiting = [each.type for each in types if each.oldest_due_at is not None]
    due = yield from store.workers.due(waiting, COUNTED_OF_TYPE)
    return [
        TypeGauges(
            each.type,
            due.get(each.type, 0),
            0 if each.oldest_due_at is None else max(0, now - each.oldest_due_at),
        )
        for each in types
    ]


def summarize(health: Health) -> str:
    """Return one sentence with the most important fact, problems first."""
    totals, identity = health.totals, health.identity
    if identity is not None and identity.paused:
        return f"Everything is paused{f' by {identity.paused_by}' if identity.paused_by else ''}"
    if not health.workers and totals.due:
        return f"No live workers; {_jobs(totals)} due"
    if totals.stuck:
        return (
            f"{totals.stuck} job{' is' if totals.stuck == 1 else 's are'} stuck on expired leases"
        )
    if health.unhandled:
        return f"No live worker handles {health.unhandled[0]}, and jobs are due"
    if health.unreadable:
        return unreadable_words(health.unreadable)
    if health.short and totals.due:
        return _short_words(health)
    if health.oldest_us > LATE_US:
        waited = format_span(health.oldest_us)
        return f"Behind: the oldest due job has waited {waited}{_pauses(health)}"
    if not health.workers:
        return "No live workers; nothing is due"
    return f"{_healthy(totals)}{_pauses(health)}"


def unreadable_words(count: int) -> str:
    """Say how many jobs wait for other code, as every surface does."""
    if count == 1:
        return "1 job is waiting for code that can read its input or records"
    return f"{count:,} jobs are waiting for code that can read their input or records"


def _short_words(health: Health) -> str:
    some = "workers are" if health.workers > 1 else "worker is"
    return f"{health.short} of {health.workers} {some} short of database connections; see holdfast doctor"


def _healthy(totals: QueueTotals) -> str:
    if totals.failed:
        return f"Healthy, with {totals.failed} dead letter{'' if totals.failed == 1 else 's'}"
    return "Healthy: jobs are running" if totals.running or totals.due else "Healthy: nothing to do"


def _pauses(health: Health) -> str:
    paused = [
        *_name_or_count([each.type for each in health.paused], "types"),
        *_name_or_count([partition_words(each.id) for each in health.paused_keys], "keys"),
    ]
    return "".join(f"; {each} paused" for each in paused)


def _name_or_count(names: Sequence[str], many: str) -> list[str]:
    """Name one, and count several."""
    return [f"{names[0]} is" if len(names) == 1 else f"{len(names)} {many} are"] if names else []


def _jobs(totals: QueueTotals) -> str:
    if totals.due == 1:
        return "1 job is"
    return f"{totals.due:,}{'+' if totals.bounded else ''} jobs are"
