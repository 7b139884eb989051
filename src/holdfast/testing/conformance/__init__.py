"""The classes that a store must pass, and what they ask of it."""

from holdfast.testing.conformance.atomicity import (
    AtomicityConformance,
)
from holdfast.testing.conformance.blocking import (
    EdgeConformance,
    FanInConformance,
    ReadingEdgesConformance,
)
from holdfast.testing.conformance.claiming import (
    AttemptCountingConformance,
    ClaimingConformance,
    ConcurrentClaimsConformance,
    CrashedJobsConformance,
    NextDueConformance,
)
from holdfast.testing.conformance.cycles import (
    CycleConformance,
)
from holdfast.testing.conformance.deleting import (
    DeletingConformance,
)
from holdfast.testing.conformance.ending import (
    EndingConformance,
    RedrivingConformance,
    TriggeringConformance,
)
from holdfast.testing.conformance.events import (
    SubscriptionConformance,
    WaitingEventConformance,
)
from holdfast.testing.conformance.fencing import (
    FencingConformance,
)
from holdfast.testing.conformance.finishing import (
    ContinuingConformance,
    FinishingConformance,
    FlushConformance,
)
from holdfast.testing.conformance.harness import (
    AsyncHarness,
    Contents,
    Harness,
    OpenTransaction,
    SyncHarness,
)
from holdfast.testing.conformance.keys import (
    ConcurrentKeysConformance,
    KeyConformance,
)
from holdfast.testing.conformance.leasing import (
    GivingBackConformance,
    HeldJobsConformance,
    LeaseConformance,
)
from holdfast.testing.conformance.lifecycle import (
    LifecycleConformance,
)
from holdfast.testing.conformance.presence import (
    SettingsConformance,
    TotalsConformance,
    WorkerPresenceConformance,
)
from holdfast.testing.conformance.reading import (
    ChainReadingConformance,
    FilterConformance,
    ReadingConformance,
)
from holdfast.testing.conformance.reaping import (
    ReapedForGoodConformance,
    ReapingConformance,
    ReapingInBatchesConformance,
)
from holdfast.testing.conformance.records import (
    AuditConformance,
    DeadLetterConformance,
)
from holdfast.testing.conformance.retention import (
    RetentionConformance,
)
from holdfast.testing.conformance.row_locks import (
    LockedReapConformance,
    RowLockConformance,
)
from holdfast.testing.conformance.slots import (
    RunConformance,
    SlotConformance,
)
from holdfast.testing.conformance.starting import (
    StartingConformance,
)

__all__ = [
    "AsyncHarness",
    "AtomicityConformance",
    "AttemptCountingConformance",
    "AuditConformance",
    "ChainReadingConformance",
    "ClaimingConformance",
    "ConcurrentClaimsConformance",
    "ConcurrentKeysConformance",
    "Contents",
    "ContinuingConformance",
    "CrashedJobsConformance",
    "CycleConformance",
    "DeadLetterConformance",
    "DeletingConformance",
    "EdgeConformance",
    "EndingConformance",
    "FanInConformance",
    "FencingConformance",
    "FilterConformance",
    "FinishingConformance",
    "FlushConformance",
    "GivingBackConformance",
    "Harness",
    "HeldJobsConformance",
    "KeyConformance",
    "LeaseConformance",
    "LifecycleConformance",
    "LockedReapConformance",
    "NextDueConformance",
    "OpenTransaction",
    "ReadingConformance",
    "ReadingEdgesConformance",
    "ReapedForGoodConformance",
    "ReapingConformance",
    "ReapingInBatchesConformance",
    "RedrivingConformance",
    "RetentionConformance",
    "RowLockConformance",
    "RunConformance",
    "SettingsConformance",
    "SlotConformance",
    "StartingConformance",
    "SubscriptionConformance",
    "SyncHarness",
    "TotalsConformance",
    "TriggeringConformance",
    "WaitingEventConformance",
    "WorkerPresenceConformance",
]
