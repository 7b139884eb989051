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

Leave out `RowLockConformance`, `LockedReapConformance` and `DebounceLocksConformance` when your store lets only one
transaction write at a time.
With pytest-asyncio in strict mode mark the module: `pytestmark = pytest.mark.asyncio`.
"""

from holdfast.testing.conformance.archiving import ArchivingConformance as ArchivingConformance
from holdfast.testing.conformance.batching import BatchConformance as BatchConformance
from holdfast.testing.conformance.blocking import CircleConformance as CircleConformance
from holdfast.testing.conformance.blocking import EdgeConformance as EdgeConformance
from holdfast.testing.conformance.blocking import FanInConformance as FanInConformance
from holdfast.testing.conformance.blocking import ReadingEdgesConformance as ReadingEdgesConformance
from holdfast.testing.conformance.claiming import (
    AttemptCountingConformance as AttemptCountingConformance,
)
from holdfast.testing.conformance.claiming import ClaimingConformance as ClaimingConformance
from holdfast.testing.conformance.claiming import (
    ConcurrentClaimsConformance as ConcurrentClaimsConformance,
)
from holdfast.testing.conformance.claiming import CrashedJobsConformance as CrashedJobsConformance
from holdfast.testing.conformance.claiming import NextDueConformance as NextDueConformance
from holdfast.testing.conformance.cycles import CycleConformance as CycleConformance
from holdfast.testing.conformance.cycles import RunConformance as RunConformance
from holdfast.testing.conformance.cycles import SlotConformance as SlotConformance
from holdfast.testing.conformance.debouncing import DebounceConformance as DebounceConformance
from holdfast.testing.conformance.debouncing import (
    DebounceLocksConformance as DebounceLocksConformance,
)
from holdfast.testing.conformance.finishing import ContinuingConformance as ContinuingConformance
from holdfast.testing.conformance.finishing import EndingConformance as EndingConformance
from holdfast.testing.conformance.finishing import FinishingConformance as FinishingConformance
from holdfast.testing.conformance.finishing import FlushConformance as FlushConformance
from holdfast.testing.conformance.finishing import RedrivingConformance as RedrivingConformance
from holdfast.testing.conformance.finishing import TriggeringConformance as TriggeringConformance
from holdfast.testing.conformance.harness import AsyncHarness as AsyncHarness
from holdfast.testing.conformance.harness import Contents as Contents
from holdfast.testing.conformance.harness import Harness as Harness
from holdfast.testing.conformance.harness import OpenTransaction as OpenTransaction
from holdfast.testing.conformance.harness import SyncHarness as SyncHarness
from holdfast.testing.conformance.isolation import AtomicityConformance as AtomicityConformance
from holdfast.testing.conformance.isolation import LockedReapConformance as LockedReapConformance
from holdfast.testing.conformance.isolation import RowLockConformance as RowLockConformance
from holdfast.testing.conformance.leasing import FencingConformance as FencingConformance
from holdfast.testing.conformance.leasing import GivingBackConformance as GivingBackConformance
from holdfast.testing.conformance.leasing import HeldJobsConformance as HeldJobsConformance
from holdfast.testing.conformance.leasing import LeaseConformance as LeaseConformance
from holdfast.testing.conformance.leasing import ProgressConformance as ProgressConformance
from holdfast.testing.conformance.lifecycle import LifecycleConformance as LifecycleConformance
from holdfast.testing.conformance.limiting import LimitConformance as LimitConformance
from holdfast.testing.conformance.limiting import (
    LimitSettingConformance as LimitSettingConformance,
)
from holdfast.testing.conformance.limiting import RateConformance as RateConformance
from holdfast.testing.conformance.ordering import OrderConformance as OrderConformance
from holdfast.testing.conformance.ordering import TurnConformance as TurnConformance
from holdfast.testing.conformance.reading import AuditConformance as AuditConformance
from holdfast.testing.conformance.reading import ChainReadingConformance as ChainReadingConformance
from holdfast.testing.conformance.reading import DeadLetterConformance as DeadLetterConformance
from holdfast.testing.conformance.reading import FilterConformance as FilterConformance
from holdfast.testing.conformance.reading import ReadingConformance as ReadingConformance
from holdfast.testing.conformance.reading import WalkConformance as WalkConformance
from holdfast.testing.conformance.reaping import (
    ReapedForGoodConformance as ReapedForGoodConformance,
)
from holdfast.testing.conformance.reaping import ReapingConformance as ReapingConformance
from holdfast.testing.conformance.reaping import (
    ReapingInBatchesConformance as ReapingInBatchesConformance,
)
from holdfast.testing.conformance.replaying import ReplayConformance as ReplayConformance
from holdfast.testing.conformance.retention import DeletingConformance as DeletingConformance
from holdfast.testing.conformance.retention import RetentionConformance as RetentionConformance
from holdfast.testing.conformance.starting import (
    ConcurrentKeysConformance as ConcurrentKeysConformance,
)
from holdfast.testing.conformance.starting import KeyConformance as KeyConformance
from holdfast.testing.conformance.starting import StartingConformance as StartingConformance
from holdfast.testing.conformance.starting import SubscriptionConformance as SubscriptionConformance
from holdfast.testing.conformance.starting import WaitingEventConformance as WaitingEventConformance
from holdfast.testing.conformance.unreadable import UnreadableConformance as UnreadableConformance
from holdfast.testing.conformance.workers import SettingsConformance as SettingsConformance
from holdfast.testing.conformance.workers import TotalsConformance as TotalsConformance
from holdfast.testing.conformance.workers import (
    WorkerPresenceConformance as WorkerPresenceConformance,
)
