"""The records of jobs, chains and leases that pass between core, stores and surfaces."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.lifecycle import STATES as STATES
from holdfast.core.lifecycle import TERMINAL as TERMINAL
from holdfast.core.lifecycle import ChainState as ChainState
from holdfast.core.lifecycle import State as State
from holdfast.core.lifecycle import TerminalState as TerminalState

LIVE: frozenset[State] = frozenset({"blocked", "pending", "running"})

DEFAULT_PRIORITY = 5
PRIORITIES = range(10)

OnBlockerFailure = Literal["fail", "wait", "run"]
KeyScope = Literal["open", "any"]


class NewJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job to be written. Its fields are the columns that the insert statement reads.

    A job of a limited type waits at `gate`; if its queue is `ordered`, it keeps its place there. The input
    of a `debounced` one may be replaced until it starts. Its `cost` counts where limits count costs.
    """

    id: str
    chain_id: str
    type: str
    input: str
    chain_index: int = 0
    priority: int = DEFAULT_PRIORITY
    at: Instant | None = None
    key: str | None = None
    trace: str | None = None
    max_attempts: int | None = None
    blockers: int = 0
    gate: str | None = None
    ordered: bool = False
    version: int | None = None
    debounced: bool = False
    context: str | None = None
    cost: int | None = None


class NewBlocker(msgspec.Struct, frozen=True):
    """An edge to be written: job waits for chain; of a function, `step` is the position of the run that started it."""

    job_id: str
    position: int
    chain_id: str
    on_failure: OnBlockerFailure = "fail"
    step: int | None = None


class Debounce(msgspec.Struct, frozen=True):
    """How long a job waits for quiet after each start, and how long after the first one at most."""

    quiet_ms: int
    latest_ms: int | None = None


class NewRevision(msgspec.Struct, frozen=True):
    """What a debounced job is asked for again with."""

    job_id: str
    input: str
    quiet_ms: int
    latest_ms: int | None
    version: int | None = None


class Settled(msgspec.Struct, frozen=True):
    """A claimed debounced job: its newest input, unless it is the one it has, or that it waits on for quiet."""

    job_id: str
    input: str | None
    is_put_off: bool
    version: int | None = None


class RevisionRecord(msgspec.Struct, frozen=True):
    """When a debounced job starts if it is not asked for again, its latest time, and how often it was asked for.

    `input` is what it was last asked for with.
    """

    due_at: Instant
    latest_at: Instant | None
    number: int
    input: str = "null"
    version: int | None = None


class TakenKey(msgspec.Struct, frozen=True):
    """A deduplication key that a chain takes over from its holder."""

    type: str
    key: str
    chain_id: str
    holder: str


class NewKey(msgspec.Struct, frozen=True):
    """A claim on a deduplication key for a chain about to start."""

    type: str
    key: str
    chain_id: str
    scope: KeyScope = "open"
    window_ms: int | None = None
    exclude: list[str] = []


class Probe(msgspec.Struct, frozen=True):
    """Where one look of a claim begins: a type, a priority and the low-water mark behind which nothing is expected.

    Without a priority it means all that the type has, each taken in its turn. `share` is what it gives before the
    other probes of the same priority are asked, `room` what it gives at most. `max` limits what is taken of a type in
    all its priorities together; it is the same in each of its probes. Versions above `reads` are left alone.
    """

    type: str
    priority: int | None
    token: str
    room: int
    after: Instant
    after_id: str
    max: int | None = None
    share: int | None = None
    reads: int | None = None


class LeaseClass(msgspec.Struct, frozen=True):
    """One lease to be taken by a claim; its policies travel with it, so that a reaper needs no application code.

    The backoff is that of jobs whose worker died.
    """

    token: str
    lease_ms: int
    max_attempts: int
    backoff_base_ms: int
    backoff_cap_ms: int


ClaimCommit = Literal["auto", "lazy", "durable"]
"""Whether a claim waits for the disk and the standby: `auto` waits where the server awaits a standby."""


class Claim(msgspec.Struct, frozen=True):
    """One round of a claimer: which types, how many, under which leases.

    The most urgent jobs are taken, and of probes of one priority those of the first ones, each a share.
    """

    worker: str
    limit: int
    probes: tuple[Probe, ...]
    classes: tuple[LeaseClass, ...]
    allow_crashed: bool = True
    commit: ClaimCommit = "auto"


class ClaimedJob(msgspec.Struct, gc=False):
    """A job as its claim found it. Not frozen and unknown to the collector: one is made per job on the hottest path.

    Of one whose row was deleted by SQL, only what the queue knows is there: `chain_id` is None. With `steps` there are
    records of earlier attempts.
    """

    id: str
    token: str
    type: str
    priority: int
    available_at: Instant
    attempt: int
    max_attempts: int | None
    crashes: int
    fence: int
    chain_id: str
    chain_index: int
    input: str
    blockers: int
    trace: str | None
    key: str | None
    created_at: Instant
    claimed_at: Instant
    version: int | None = None
    debounced: bool = False
    gate: str | None = None
    failing: bool | None = None
    awaited: bool = False
    steps: bool | None = None
    expires_at: Instant | None = None
    context: str | None = None


ON_FAILED_TRIES = 5
"""How often `on_failed` is tried before its job fails without it."""


class FailingJob(msgspec.Struct, frozen=True):
    """Why a job fails for good, and after how many attempts; later ones are those of `on_failed`."""

    attempt: int
    error: str | None
    fingerprint: str | None


OnFailed = Literal["due", "called"]

FinishKind = Literal["complete", "continue", "fail", "cancel", "retry", "snooze", "release", "park"]


class Finish(msgspec.Struct, omit_defaults=True, gc=False):
    """How one attempt ended; the fenced write of the completer. `id` and `token` together are the proof.

    `gate` is the one the job came through; with `rest` nothing else comes through it until the job is due again. Of a
    failure, `on_failed` says whether that function of its type is to be called first, or has been. One that parks is
    due again at `until`, if it has one, or when something happens that it waits for; `ignores` are the positions of
    its open records that it waits for no longer. With `drop`, a completion that nobody awaits leaves nothing behind.
    """

    id: str
    token: str
    kind: FinishKind
    worker: str
    chain_id: str
    started_at: Instant | None = None
    output: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    delay_ms: int = 0
    next: NewJob | None = None
    next_blockers: list[NewBlocker] = []
    gate: str | None = None
    rest: bool = False
    on_failed: OnFailed | None = None
    until: Instant | None = None
    ignores: list[int] = []
    drop: bool = False


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A finish that the store accepted."""

    id: str
    type: str
    awaited: bool


LeaseFate = Literal["held", "done", "ended", "taken", "free", "gone"]
"""What became of a job, for the holder of a token: still held by that token, ended by that token, ended by another,
running under another token, waiting without any, or deleted."""


class LeaseStatus(msgspec.Struct, frozen=True):
    """What the store says of one (job, token) pair."""

    id: str
    token: str
    lease: LeaseFate
    state: State | None


class JobRef(msgspec.Struct, frozen=True):
    """A job by id and type: enough to tell whom it concerns."""

    id: str
    type: str


class Held(msgspec.Struct, frozen=True):
    """A job that bears a token of the worker that asks."""

    id: str
    token: str


class Reaped(msgspec.Struct, frozen=True):
    """A job taken back from an expired lease, and what became of it."""

    id: str
    type: str
    worker: str
    state: State
    crashes: int
    stale_ms: int
    awaited: bool
    token: str


class EndedJob(msgspec.Struct, frozen=True):
    """A live job that was ended from outside, with the state it was in."""

    id: str
    chain_id: str
    type: str
    was: State
    worker: str | None
    awaited: bool


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """An end from outside: cancel, complete, continue or fail a live job, even if a worker holds it.

    An event that is `fanned_out` has ended, but nothing was done for it yet: its deliveries count, and it does not.
    """

    id: str
    state: TerminalState
    output: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    next: NewJob | None = None
    fanned_out: bool = False


class JobRecord(msgspec.Struct, frozen=True):
    """A job as people see it: what was asked, its state, what came of it."""

    id: str
    chain_id: str
    chain_index: int
    type: str
    state: State
    priority: int
    input: str
    key: str | None
    trace: str | None
    created_at: Instant
    planned_at: Instant | None
    available_at: Instant | None
    attempt: int
    max_attempts: int | None
    crashes: int
    fence: int
    worker: str | None
    lease_expires_at: Instant | None
    output: str | None
    error: str | None
    fingerprint: str | None
    continued: bool
    started_at: Instant | None
    finished_at: Instant | None
    version: int = 1
    expires_at: Instant | None = None
    context: str | None = None


class UnreadableJob(msgspec.Struct, frozen=True):
    """A job whose input some worker's code could not read, and whether it still waits for code that can."""

    id: str
    type: str
    error: str
    at: Instant
    waits: bool
    version: int | None
    input: str | None


class UnreadableGroup(msgspec.Struct, frozen=True):
    """How many jobs of a type wait for code that can read their input, and since when.

    `missing` says which key those wait for whose input is sealed.
    """

    type: str
    count: int
    since: Instant
    missing: str | None = None


class RedriveRecord(msgspec.Struct, frozen=True):
    """A redrive at a rate that is under way: how far apart its jobs become due, and how many are left."""

    id: str
    spacing_us: int
    left: int


class RedrivePace(msgspec.Struct, frozen=True):
    """Where a redrive is: when its next job becomes due, and the time now."""

    id: str
    spacing_us: int
    next_at: Instant
    now: Instant


class AttemptRecord(msgspec.Struct, frozen=True):
    """One attempt that did not complete its job."""

    job_id: str
    attempt: int
    fence: int
    kind: str
    worker: str | None
    started_at: Instant | None
    ended_at: Instant
    error: str | None


class ChainRecord(msgspec.Struct, frozen=True):
    """A chain as people see it: its first job's request and its last job's result."""

    id: str
    type: str
    state: State
    key: str | None
    input: str
    output: str | None
    error: str | None
    jobs: int
    created_at: Instant
    finished_at: Instant | None


class BlockerRecord(msgspec.Struct, frozen=True):
    """An edge as people and handlers see it."""

    job_id: str
    position: int
    chain_id: str
    open: bool
    on_failure: OnBlockerFailure
    state: State | None
    output: str | None
    error: str | None = None
    step: int | None = None


class TypeSetting(msgspec.Struct, frozen=True):
    """What was set for a job type at run time; None means that the code's own value applies."""

    type: str
    paused: bool = False
    paused_by: str | None = None
    paused_at: Instant | None = None
    lease_ms: int | None = None
    timeout_ms: int | None = None
    concurrency: int | None = None
    max_attempts: int | None = None


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
    context: str | None = None


class Reference(msgspec.Struct, frozen=True):
    """A job of another chain that still waits for a chain."""

    chain_id: str
    job_id: str
    waiting_chain_id: str


class ClosedEdge(msgspec.Struct, frozen=True):
    """An edge that was closed, whether its policy fails the dependent, and of a function the run it belongs to."""

    job_id: str
    chain_id: str
    fails: bool
    step: int | None = None


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


class AppliedMigration(msgspec.Struct, frozen=True):
    """A migration as the database remembers it; code older than `oldest_code` may not use the schema after it."""

    version: int
    name: str
    checksum: str
    oldest_code: int


class Identity(msgspec.Struct, frozen=True):
    """Which database this is, as recorded and as it is now: they differ in a copy.

    `awaits_standby` says that commits wait for a synchronous standby. `system_id` is null where a server does not tell.
    `is_known_place` says that the server was not restarted since it was recorded, or has an address that was recorded;
    `is_recorded`, that nothing about it is left to be recorded.
    """

    id: str
    recorded_name: str
    name: str
    paused: bool
    paused_by: str | None
    paused_at: Instant | None
    awaits_standby: bool = False
    recorded_system_id: str | None = None
    system_id: str | None = None
    recorded_environment: str | None = None
    environment: str | None = None
    is_known_place: bool = True
    is_recorded: bool = True

    @property
    def copied(self) -> str | None:
        """Why this is a copy, None for the database itself."""
        if self.recorded_name != self.name:
            return f"this database was created as {self.recorded_name} and is now named {self.name}"
        if self.system_id and self.recorded_system_id and self.system_id != self.recorded_system_id:
            return (
                f"{self.name} was last used on another server: its system identifier was "
                f"{self.recorded_system_id} and is now {self.system_id}"
            )
        if self.environment is not None and self.environment != self.recorded_environment:
            recorded = self.recorded_environment or "none"
            return f"the environment here is {self.environment}; the one recorded in {self.name} is {recorded}"
        if self.environment is None and not self.is_known_place:
            return f"{self.name} was last used at another address, on a server that was started at another time"
        return None


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who changed what; `before` and `after` are JSON texts, and the database sets `at` when it writes the record."""

    id: str
    actor: str
    role: str
    action: str
    target: str
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    request_id: str | None = None
    at: Instant = 0


class NewToken(msgspec.Struct, frozen=True):
    """A token to be written: its owner and the hash of its secret."""

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


class Swept(msgspec.Struct, frozen=True):
    """How many dead rows a sweep found, and how many it had to leave: an old snapshot may still see them."""

    dead: int
    left: int
