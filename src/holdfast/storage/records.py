"""Small records that only stores and operations exchange."""

from __future__ import annotations

import msgspec

from holdfast.core.model import Instant, Reaped, State


class KeyHolder(msgspec.Struct, frozen=True):
    """Which chain holds a deduplication key; one that is `kept` holds it beyond its own end."""

    type: str
    key: str
    chain_id: str
    kept: bool = False


class Tail(msgspec.Struct, frozen=True):
    """The last job of a chain."""

    chain_id: str
    job_id: str
    chain_index: int
    state: State


class Reference(msgspec.Struct, frozen=True):
    """A job of another chain that still waits for a chain."""

    chain_id: str
    job_id: str
    waiting_chain_id: str


class ClosedEdge(msgspec.Struct, frozen=True):
    """An edge that was closed, and whether its policy fails the dependent."""

    job_id: str
    chain_id: str
    fails: bool


class HealPage(msgspec.Struct, frozen=True):
    """What was looked at, and moved, after a clock had been set back; `last` is where to go on."""

    last: str | None
    seen: int
    healed: int


class ReapPage(msgspec.Struct, frozen=True):
    """What one look of the reaper took, and where the next begins; `last` is None when no lease was expired."""

    reaped: list[Reaped]
    leases: int
    last: tuple[Instant, str] | None


class LeaseRecord(msgspec.Struct, frozen=True):
    """A lease as people see it."""

    token: str
    worker: str
    claimed_at: Instant
    expires_at: Instant
    jobs: int


class NewProgress(msgspec.Struct, frozen=True):
    """How far an attempt says it is; the token proves that it may say so."""

    id: str
    token: str
    fence: int
    fraction: float
    note: str


class ProgressRecord(msgspec.Struct, frozen=True):
    """How far a job was when its attempt under `fence` last said so."""

    id: str
    fence: int
    fraction: float
    note: str
    at: Instant


class Subscription(msgspec.Struct, frozen=True):
    """An event and the handler it is delivered to."""

    event: str
    handler: str

    @property
    def job_type(self) -> str:
        """The job type that delivers this event to this handler."""
        return f"{self.event}/{self.handler}"


class SubscriptionRecord(Subscription, frozen=True):
    """A subscription as it is kept: since when."""

    created_at: Instant


class WaitingEvent(msgspec.Struct, frozen=True):
    """An event published before anybody subscribed to it."""

    id: str
    event: str
    input: str
    priority: int
    trace: str | None
    planned_at: Instant | None


class WorkerSign(msgspec.Struct, frozen=True):
    """What a worker says of itself at each heartbeat; `types` and `counters` are JSON texts."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    slots: int
    types: str
    counters: str
    last_error: str | None


class VanishedWorker(msgspec.Struct, frozen=True):
    """A worker that stopped giving signs without saying goodbye."""

    id: str
    name: str
    seen_at: Instant


class TypeTotals(msgspec.Struct, frozen=True):
    """Totals of one job type."""

    type: str
    live: int
    completed: int
    failed: int
    cancelled: int
    oldest_due_at: Instant | None


class AppliedMigration(msgspec.Struct, frozen=True):
    """A migration as the database remembers it; code older than `oldest_code` may not use the schema after it."""

    version: int
    name: str
    checksum: str
    oldest_code: int


class Identity(msgspec.Struct, frozen=True):
    """Which database this is: `recorded_name` differs from `name` in a restored copy."""

    id: str
    recorded_name: str
    name: str
    paused: bool
    paused_by: str | None
    paused_at: Instant | None


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead letters of one type that failed alike, with the youngest of them."""

    type: str
    fingerprint: str | None
    count: int
    oldest_at: Instant
    newest_at: Instant
    newest_id: str
    error: str | None


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that somebody did; `before` and `after` are JSON texts."""

    id: str
    actor: str
    role: str
    action: str
    target: str
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    request_id: str | None = None


class AuditRecord(msgspec.Struct, frozen=True):
    """A deed as the database remembers it."""

    id: str
    at: Instant
    actor: str
    role: str
    action: str
    target: str
    before: str | None
    after: str | None
    reason: str | None
    request_id: str | None


class NewToken(msgspec.Struct, frozen=True):
    """A token to be written: who it stands for and the hash of its secret."""

    id: str
    name: str
    role: str
    hash: str
    lasts_ms: int | None = None


class TokenRecord(msgspec.Struct, frozen=True):
    """A token as the database remembers it; the secret is not in it."""

    id: str
    name: str
    role: str
    hash: str
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None


class SeriesPoint(msgspec.Struct, frozen=True):
    """What happened in one step of time that began at `at`."""

    at: Instant
    started: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    reaped: int


class WaitStep(msgspec.Struct, frozen=True):
    """A step of time that began at `at`, as the ids that were made in it: from `first` on and before `last`."""

    at: Instant
    first: str
    last: str


class Wait(msgspec.Struct, frozen=True):
    """How long a job of one step waited from due to started."""

    at: Instant
    us: int


class TypePace(msgspec.Struct, frozen=True):
    """How much of a type ended within a span, and how many run now."""

    type: str
    ended: int
    running: int


class Swept(msgspec.Struct, frozen=True):
    """How many dead rows a sweep found, and how many it had to leave: an old snapshot may still see them."""

    dead: int
    left: int
