"""Conformance: what every store must do, as ordinary pytest classes.

To hold a store of your own to the contract, write two things (pytest and pytest-asyncio are needed):

1. In `conftest.py`, a fixture `harness` that hands out a `Harness` over an empty database for each test. For anything
   that implements `storage.database.Database`, `SyncHarness` and `AsyncHarness` are ready-made; they only ask for a
   function that reads every row of every table as text. With both, or several versions, make the fixture parametrised::

       @pytest_asyncio.fixture(params=[SyncHarness, AsyncHarness])
       async def harness(request, tmp_path):
           database = MyDatabase(tmp_path / "jobs")
           database.migrate()
           made = request.param(database, database.dump_all_tables)
           yield made
           await made.close()
           await database.close_async()

2. In a test module, a class of your own for each class of this package, inherited once::

       class TestFencing(conformance.FencingConformance): ...

Leave out `RowLockConformance` and `LockedReapConformance` when your store lets only one transaction write at a time.
With pytest-asyncio in strict mode mark the module: `pytestmark = pytest.mark.asyncio`.
"""

from holdfast.testing.conformance.blocking import (
    CircleConformance,
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
    RunConformance,
    SlotConformance,
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
from holdfast.testing.conformance.isolation import (
    AtomicityConformance,
    LockedReapConformance,
    RowLockConformance,
)
from holdfast.testing.conformance.leasing import (
    GivingBackConformance,
    HeldJobsConformance,
    LeaseConformance,
    ProgressConformance,
)
from holdfast.testing.conformance.lifecycle import (
    LifecycleConformance,
)
from holdfast.testing.conformance.reading import (
    AuditConformance,
    ChainReadingConformance,
    DeadLetterConformance,
    FilterConformance,
    ReadingConformance,
    WalkConformance,
)
from holdfast.testing.conformance.reaping import (
    ReapedForGoodConformance,
    ReapingConformance,
    ReapingInBatchesConformance,
)
from holdfast.testing.conformance.retention import (
    DeletingConformance,
    RetentionConformance,
)
from holdfast.testing.conformance.starting import (
    ConcurrentKeysConformance,
    KeyConformance,
    StartingConformance,
)
from holdfast.testing.conformance.workers import (
    SettingsConformance,
    TotalsConformance,
    WorkerPresenceConformance,
)

__all__ = [
    "AsyncHarness",
    "AtomicityConformance",
    "AttemptCountingConformance",
    "AuditConformance",
    "ChainReadingConformance",
    "CircleConformance",
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
    "ProgressConformance",
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
    "WalkConformance",
    "WorkerPresenceConformance",
]
