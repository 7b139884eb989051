"""What was received is remembered for as long as the inbox says, and then removed in small batches."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.instants import to_instant
from holdfast_streams import JetStream, Message
from holdfast_streams.inbox import inbox_runner
from holdfast_streams.inbox.inbox_runner import InboxRunner
from holdfast_streams.inbox.inbox_store import INBOXES
from tests.streams.inbox_scene import InboxScene
from tests.streams.later import later
from tests.support.until import PATIENCE_S

DAY_MS = 86_400_000


async def tick(scene: InboxScene, days_later: float) -> None:
    """Run the inboxes of the application in a tick, as it would be so much later."""
    context = later(scene, timedelta(days=days_later), "tick")
    await InboxRunner(scene.app, scene.streams.inbox).run(context)


async def test_records_are_removed_when_their_time_is_over_a_batch_at_a_time(
    inbox: InboxScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    @inbox.streams.inbox.http("shop", verify=lambda request: True, id=lambda request: "1")
    def shop(message: Message[Any], tx: Any) -> None: ...

    run = inbox.app.database.run
    old = [f"old {n}" for n in range(25)]
    assert run(INBOXES.remember("shop", old, DAY_MS, None)) == set(old)
    run(INBOXES.remember("shop", ["new"], 7 * DAY_MS, None))
    await tick(inbox, days_later=0.5)
    assert inbox.remembered() == 26
    monkeypatch.setattr(inbox_runner, "TRIM_BATCH", 10)
    monkeypatch.setattr(inbox_runner, "MAX_BATCHES", 2)
    await tick(inbox, days_later=2)
    assert inbox.remembered() == 6
    await tick(inbox, days_later=2)
    assert inbox.remembered() == 1
    assert [each["messages"] for each in inbox.told("inbox_trimmed")] == [20, 5]
    await inbox.app.aclose()


def test_a_message_is_new_again_once_its_time_is_over(inbox: InboxScene) -> None:
    run, now = inbox.app.database.run, to_instant(datetime.now(UTC))
    assert run(INBOXES.remember("shop", ["a", "b", "a"], DAY_MS, now)) == {"a", "b"}
    assert run(INBOXES.remember("shop", ["a", "c"], DAY_MS, now)) == {"c"}
    assert run(INBOXES.remember("other", ["a"], DAY_MS, now)) == {"a"}
    later = now + 2 * DAY_MS * 1000
    assert run(INBOXES.remember("shop", ["a"], DAY_MS, later)) == {"a"}
    assert run(INBOXES.remember("shop", ["a"], DAY_MS, later)) == set()
    inbox.app.close()


@pytest.mark.parametrize("work", ["_take_due", "_trim", "_beat"])
async def test_a_worker_ends_at_once_though_a_statement_that_was_cancelled_ends_well(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    scene, begun = InboxScene(sqlite_url), asyncio.Event()
    away = JetStream("nats://127.0.0.1:1", "PAYMENTS")

    @scene.streams.inbox(away, name="paid")
    def paid(message: Message[Any], tx: Any) -> None: ...

    async def hear_nothing(*_: object) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE_S)

    monkeypatch.setattr(InboxRunner, work, hear_nothing)
    async with scene.working():
        await begun.wait()
    assert [each["abandoned"] for each in scene.told("worker_stopped")] == [0]
