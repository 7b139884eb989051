"""The store: what may be done with jobs, chains, leases and the rest, as operations over named statements.

Every method returns an operation; nothing runs by itself. `now` is an instant for tests; None means the database's
clock. Operations marked *one statement* may run outside a transaction on PostgreSQL; all others need one. SQLite runs
every operation inside BEGIN IMMEDIATE.
"""

from __future__ import annotations

from holdfast.storage.store.access import AuditStore, TokenStore
from holdfast.storage.store.chains import BlockerStore, ChainStore
from holdfast.storage.store.cycles import CycleStore, RunStore, SlotStore
from holdfast.storage.store.jobs import (
    AttemptStore,
    DeadLetterStore,
    DebounceStore,
    EventStore,
    ExpiryStore,
    JobStore,
    OnFailedStore,
    RedriveStore,
    UnreadableStore,
)
from holdfast.storage.store.leases import LeaseStore
from holdfast.storage.store.limits import LimitStore
from holdfast.storage.store.log import LogStore
from holdfast.storage.store.retention import KeepStore, RetentionStore
from holdfast.storage.store.schema import ANYWHERE, DatabasePlace, SchemaStore, ServerStatsStore
from holdfast.storage.store.steps import SignalStore, StepStore
from holdfast.storage.store.workers import StatisticsStore, WorkerStore


class Store:
    """Every aggregate of one dialect; a dialect replaces those whose operations take other statements."""

    dialect: str

    def __init__(self, place: DatabasePlace = ANYWHERE) -> None:
        self.jobs = JobStore()
        self.leases = LeaseStore()
        self.limits = LimitStore()
        self.chains = ChainStore()
        self.blockers = BlockerStore()
        self.debounce = DebounceStore()
        self.events = EventStore()
        self.expiry = ExpiryStore()
        self.log = LogStore()
        self.workers = WorkerStore()
        self.attempts = AttemptStore()
        self.dead_letters = DeadLetterStore()
        self.on_failed = OnFailedStore()
        self.redrives = RedriveStore()
        self.unreadable = UnreadableStore()
        self.audit = AuditStore()
        self.tokens = TokenStore()
        self.statistics = StatisticsStore()
        self.cycles = CycleStore()
        self.slots = SlotStore()
        self.runs = RunStore()
        self.steps = StepStore()
        self.signals = SignalStore()
        self.retention = RetentionStore()
        self.keeps = KeepStore()
        self.server_stats = ServerStatsStore()
        self.schema = SchemaStore(place)
