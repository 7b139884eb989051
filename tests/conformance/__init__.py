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

from tests.conformance.archiving import ArchivingConformance as ArchivingConformance
from tests.conformance.batching import BatchConformance as BatchConformance
from tests.conformance.blocking import CircleConformance as CircleConformance
from tests.conformance.blocking import EdgeConformance as EdgeConformance
from tests.conformance.blocking import FanInConformance as FanInConformance
from tests.conformance.blocking import ReadingEdgesConformance as ReadingEdgesConformance
from tests.conformance.claiming import AttemptCountingConformance as AttemptCountingConformance
from tests.conformance.claiming import ClaimingConformance as ClaimingConformance
from tests.conformance.claiming import ConcurrentClaimsConformance as ConcurrentClaimsConformance
from tests.conformance.claiming import CrashedJobsConformance as CrashedJobsConformance
from tests.conformance.claiming import NextDueConformance as NextDueConformance
from tests.conformance.costs import CostConformance as CostConformance
from tests.conformance.cycles import CycleConformance as CycleConformance
from tests.conformance.cycles import RunConformance as RunConformance
from tests.conformance.cycles import SlotConformance as SlotConformance
from tests.conformance.debouncing import DebounceConformance as DebounceConformance
from tests.conformance.debouncing import DebounceLocksConformance as DebounceLocksConformance
from tests.conformance.finishing import ContinuingConformance as ContinuingConformance
from tests.conformance.finishing import EndingConformance as EndingConformance
from tests.conformance.finishing import FinishingConformance as FinishingConformance
from tests.conformance.finishing import FlushConformance as FlushConformance
from tests.conformance.finishing import RedrivingConformance as RedrivingConformance
from tests.conformance.finishing import TriggeringConformance as TriggeringConformance
from tests.conformance.harness import AsyncHarness as AsyncHarness
from tests.conformance.harness import Contents as Contents
from tests.conformance.harness import Harness as Harness
from tests.conformance.harness import OpenTransaction as OpenTransaction
from tests.conformance.harness import SyncHarness as SyncHarness
from tests.conformance.isolation import AtomicityConformance as AtomicityConformance
from tests.conformance.isolation import LockedReapConformance as LockedReapConformance
from tests.conformance.isolation import RowLockConformance as RowLockConformance
from tests.conformance.leasing import FencingConformance as FencingConformance
from tests.conformance.leasing import GivingBackConformance as GivingBackConformance
from tests.conformance.leasing import HealingConformance as HealingConformance
from tests.conformance.leasing import HeldJobsConformance as HeldJobsConformance
from tests.conformance.leasing import LeaseConformance as LeaseConformance
from tests.conformance.leasing import ProgressConformance as ProgressConformance
from tests.conformance.lifecycle import LifecycleConformance as LifecycleConformance
from tests.conformance.limiting import LimitConformance as LimitConformance
from tests.conformance.limiting import LimitSettingConformance as LimitSettingConformance
from tests.conformance.limiting import RateConformance as RateConformance
from tests.conformance.newer_versions import NewerVersionConformance as NewerVersionConformance
from tests.conformance.newer_versions import (
    NewerVersionInPartitionConformance as NewerVersionInPartitionConformance,
)
from tests.conformance.ordering import OrderConformance as OrderConformance
from tests.conformance.ordering import TurnConformance as TurnConformance
from tests.conformance.reading import AuditConformance as AuditConformance
from tests.conformance.reading import ChainReadingConformance as ChainReadingConformance
from tests.conformance.reading import DeadLetterConformance as DeadLetterConformance
from tests.conformance.reading import FilterConformance as FilterConformance
from tests.conformance.reading import ReadingConformance as ReadingConformance
from tests.conformance.reading import WalkConformance as WalkConformance
from tests.conformance.reaping import ReapedForGoodConformance as ReapedForGoodConformance
from tests.conformance.reaping import ReapingConformance as ReapingConformance
from tests.conformance.reaping import ReapingInBatchesConformance as ReapingInBatchesConformance
from tests.conformance.redriving import PacedRedriveConformance as PacedRedriveConformance
from tests.conformance.replaying import ReplayConformance as ReplayConformance
from tests.conformance.retention import DeletingConformance as DeletingConformance
from tests.conformance.retention import RetentionConformance as RetentionConformance
from tests.conformance.starting import ConcurrentKeysConformance as ConcurrentKeysConformance
from tests.conformance.starting import KeyConformance as KeyConformance
from tests.conformance.starting import StartingConformance as StartingConformance
from tests.conformance.starting import SubscriptionConformance as SubscriptionConformance
from tests.conformance.starting import WaitingEventConformance as WaitingEventConformance
from tests.conformance.stepping import ChildrenConformance as ChildrenConformance
from tests.conformance.stepping import ParkedInPartitionConformance as ParkedInPartitionConformance
from tests.conformance.stepping import SignalConformance as SignalConformance
from tests.conformance.stepping import SteppingConformance as SteppingConformance
from tests.conformance.unreadable import UnreadableConformance as UnreadableConformance
from tests.conformance.workers import SettingsConformance as SettingsConformance
from tests.conformance.workers import TotalsConformance as TotalsConformance
from tests.conformance.workers import WorkerPresenceConformance as WorkerPresenceConformance
