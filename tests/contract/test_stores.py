"""Every store in every colour keeps the contract."""

import pytest

from holdfast.testing import conformance

pytestmark = pytest.mark.asyncio(loop_scope="session")


class TestAttemptCounting(conformance.AttemptCountingConformance): ...


class TestClaiming(conformance.ClaimingConformance): ...


class TestConcurrentClaims(conformance.ConcurrentClaimsConformance): ...


class TestContinuing(conformance.ContinuingConformance): ...


class TestCrashedJobs(conformance.CrashedJobsConformance): ...


class TestEnding(conformance.EndingConformance): ...


class TestFencing(conformance.FencingConformance): ...


class TestFinishing(conformance.FinishingConformance): ...


class TestFlush(conformance.FlushConformance): ...


class TestGivingBack(conformance.GivingBackConformance): ...


class TestHeldJobs(conformance.HeldJobsConformance): ...


class TestLease(conformance.LeaseConformance): ...


class TestLifecycle(conformance.LifecycleConformance): ...


class TestNextDue(conformance.NextDueConformance): ...


class TestReapedForGood(conformance.ReapedForGoodConformance): ...


class TestReaping(conformance.ReapingConformance): ...


class TestReapingInBatches(conformance.ReapingInBatchesConformance): ...


class TestRedriving(conformance.RedrivingConformance): ...


class TestStarting(conformance.StartingConformance): ...


class TestTriggering(conformance.TriggeringConformance): ...
