"""The classes that a store must pass, and what they ask of it."""

from holdfast.testing.conformance.claiming import (
    AttemptCountingConformance,
    ClaimingConformance,
    ConcurrentClaimsConformance,
    CrashedJobsConformance,
    NextDueConformance,
)
from holdfast.testing.conformance.ending import (
    EndingConformance,
    RedrivingConformance,
    TriggeringConformance,
)
from holdfast.testing.conformance.fencing import (
    FencingConformance,
)
from holdfast.testing.conformance.finishing import (
    ContinuingConformance,
    FinishingConformance,
    FlushConformance,
)
from holdfast.testing.conformance.harness import AsyncHarness, Harness, SyncHarness
from holdfast.testing.conformance.leasing import (
    GivingBackConformance,
    HeldJobsConformance,
    LeaseConformance,
)
from holdfast.testing.conformance.lifecycle import (
    LifecycleConformance,
)
from holdfast.testing.conformance.reaping import (
    ReapedForGoodConformance,
    ReapingConformance,
    ReapingInBatchesConformance,
)
from holdfast.testing.conformance.starting import (
    StartingConformance,
)

__all__ = [
    "AsyncHarness",
    "AttemptCountingConformance",
    "ClaimingConformance",
    "ConcurrentClaimsConformance",
    "ContinuingConformance",
    "CrashedJobsConformance",
    "EndingConformance",
    "FencingConformance",
    "FinishingConformance",
    "FlushConformance",
    "GivingBackConformance",
    "Harness",
    "HeldJobsConformance",
    "LeaseConformance",
    "LifecycleConformance",
    "NextDueConformance",
    "ReapedForGoodConformance",
    "ReapingConformance",
    "ReapingInBatchesConformance",
    "RedrivingConformance",
    "StartingConformance",
    "SyncHarness",
    "TriggeringConformance",
]
