"""Leases of lines outlive a beat that fails."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.errors import DatabaseUnreachable
from holdfast_streams.reader_loop import ERROR_S, ReaderLoop


class DeadLink:
    """Leads nowhere."""

    async def run_atomic(self, op: Any) -> Any:
        op.close()
        raise DatabaseUnreachable("the line was cut")


class NotedWaits:
    """A clock that notes the first wait, and ends what waits."""

    waited_s = 0.0

    def monotonic(self) -> float:
        return 0.0

    def random(self) -> float:
        return 1.0

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        self.waited_s = seconds
        event.set()


@pytest.mark.parametrize("lease_ms", [2_000, 60_000])
async def test_a_renewal_that_failed_is_tried_again_well_before_the_lease_ends(
    lease_ms: int,
) -> None:
    clock = NotedWaits()
    database: Any = SimpleNamespace(link=lambda *_: DeadLink(), store=None)
    loop = ReaderLoop(database, {}, "w", lease_ms, 1, clock, lambda *_: None)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        await loop._keep_lines(group)
    # A beat comes after a third of the lease: two more tries fit into what is left.
    assert clock.waited_s <= min(lease_ms / 1000 / 3, 1.5 * ERROR_S)
