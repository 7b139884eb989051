"""A job whose row somebody deleted by SQL is taken for what it is, and keeps nobody from their work."""

import pytest

from holdfast import Limit
from tests.worker.workshop import Workshop


@pytest.mark.parametrize("limits", [[], [Limit(1)]], ids=["plain", "limited"])
async def test_a_job_without_its_row_leaves_the_queue_and_is_told_once(
    workshop: Workshop, limits: list[Limit]
) -> None:
    async def quick(job: object) -> None: ...

    workshop.handle("quick", quick, limits=limits)
    gone, kept = await workshop.start("quick", count=2, gate="quick#" if limits else None)
    workshop.ledger.delete("job", gone)
    await workshop.until_idle()
    assert [each.fields["job_id"] for each in workshop.events.of("job_missing")] == [gone]
    assert not workshop.events.of("database_unreachable")
    assert await workshop.states([kept]) == ["completed"]
    assert workshop.ledger.rows("queue") == 0
    assert workshop.ledger.rows("lease") == 0
