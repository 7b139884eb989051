"""Workers die with -9 before every step, on both stores: no push and no receipt is lost, repeats have a cause."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from apps.tenders.local.push_server import PushServer
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.conftest import environment
from apps.tenders.tests.pushing import (
    NOON,
    Pushing,
    add_deliveries,
    add_tender,
    deliveries,
    is_notified,
)
from tests.support.dying import DyingProcesses

from tenders.models import Delivery, DeliveryStatus

pushing = shared.pushing
pytestmark = pytest.mark.timeout(600)

LEASE = timedelta(seconds=61)
QUARTER = timedelta(minutes=15)


@pytest.fixture
async def mortals(pushing: Pushing, url: str, tmp_path: Path) -> AsyncIterator[DyingProcesses]:
    """Runs that die, beside a push service that stays."""
    given = environment(url, EXPO_URL=pushing.url)
    mortals = DyingProcesses("apps.tenders.tests.dying", url, tmp_path / "steps", given)
    yield mortals
    mortals.close()


def ahead(pushing: Pushing) -> int:
    """Return how far the test's clock is ahead of noon."""
    return (pushing.clock.now - NOON) // timedelta(microseconds=1)


async def newest(tokens: list[str]) -> list[Delivery]:
    """Return the deliveries that were added last."""
    return (await deliveries())[-len(tokens) :]


async def test_whichever_step_a_worker_dies_at_every_device_gets_its_push(
    pushing: Pushing, server: PushServer, mortals: DyingProcesses
) -> None:
    died_at: set[str] = set()
    repeated = 0
    for step in itertools.count(1):
        tender = await add_tender(f"{step}-1-LE26")
        tokens = await add_deliveries(tender, 2)
        steps = await mortals.die("dispatch", step, ahead(pushing))
        pushing.clock.advance(LEASE)
        await pushing.dispatch()
        pushing.clock.advance(timedelta(minutes=1))
        await pushing.dispatch()
        copies = Counter(each.token for each in server.accepted)
        expected = 2 if is_sent_but_not_recorded(steps or []) else 1
        assert [copies[each] for each in tokens] == [expected] * 2
        for each in await newest(tokens):
            assert each.status is DeliveryStatus.SENT
            assert each.attempt_count == (2 if is_claimed_only(steps or []) else 1)
            assert each.last_error_code == ("WorkerLost" if each.attempt_count == 2 else None)
        assert await is_notified(tender)
        repeated += expected == 2
        if steps is None:
            break
        died_at.add(steps[-1])
    assert died_at >= {"statement", "commit", "committed", "_claim", "_claim done", "_write done"}
    assert died_at >= {"send", "send done"}
    assert repeated > 3


async def test_whichever_step_a_receipt_dies_at_nothing_is_sent_again(
    pushing: Pushing, server: PushServer, mortals: DyingProcesses
) -> None:
    died_at: set[str] = set()
    for step in itertools.count(1):
        tender = await add_tender(f"{step}-1-LE26")
        tokens = await add_deliveries(tender, 3)
        server.receipt_errors[tokens[2]] = "DeviceNotRegistered"
        await pushing.dispatch()
        pushing.clock.advance(QUARTER)
        steps = await mortals.die("receipt", step, ahead(pushing))
        assert await is_notified(tender)
        pushing.clock.advance(LEASE)
        await pushing.receipt()
        pushing.clock.advance(timedelta(minutes=1))
        await pushing.receipt()
        assert await pushing.dispatch() == {}
        ended = await newest(tokens)
        assert [each.status.value for each in ended] == ["ok", "ok", "invalid"]
        assert {each.attempt_count for each in ended} == {1}
        assert not (await shared.installation(tokens[2])).is_active
        assert await is_notified(tender)
        copies = Counter(each.token for each in server.accepted)
        assert [copies[each] for each in tokens] == [1, 1, 1]
        if steps is None:
            break
        died_at.add(steps[-1])
    assert died_at >= {"statement", "commit", "committed", "claim", "claim done", "finish done"}
    assert died_at >= {"fetch_receipts", "fetch_receipts done"}


def is_claimed_only(steps: list[str]) -> bool:
    """Say whether the claim was committed and its outcome was not."""
    return _is_committed_after("_claim done", steps) and not _is_committed_after(
        "_write done", steps
    )


def is_sent_but_not_recorded(steps: list[str]) -> bool:
    """Say whether the service took the pushes, and the run died before the commit that records it."""
    return "send done" in steps and not _is_committed_after("_write done", steps)


def _is_committed_after(name: str, steps: list[str]) -> bool:
    return name in steps and "committed" in steps[steps.index(name) :]
