"""A worker dies before or after every database call of its jobs' lives; another one finishes what it began."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.chaos.crashing import Death, types_of
from tests.support.forking import Forker
from tests.support.until import until
from tests.worker.workshop import Workshop

PURPOSES = {"claim": 4, "heartbeat": 4, "reaper": 2, "complete": 2, "transaction": 4}
"""Each with the fewest moments in which a worker can die."""


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    """One for all tests."""
    forker = Forker("tests.chaos.crashing")
    yield forker
    forker.close()


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_whatever_a_dead_worker_began_is_finished_once(
    workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path, forker: Forker, purpose: str
) -> None:
    is_postgres = workshop.store.dialect == "postgresql"
    url = request.getfixturevalue("worker_url") if is_postgres else str(tmp_path / "holdfast.db")
    log = tmp_path / "log"
    log.touch()
    for moment in itertools.count(1):
        death = Death(url, str(log), workshop.ledger.write_effect, purpose, moment)
        plain = await workshop.start_one("plain", moment)
        staged = await workshop.start_one("staged", moment)
        has_died = await forker.dies(death)
        await finish(workshop, death)
        for job_id in (plain, staged):
            record = await workshop.job(job_id)
            assert (record.state, record.output) == ("completed", str(moment))
        assert workshop.ledger.effects() == [str(each) for each in range(1, moment + 1)]
        if not has_died:
            break
    assert moment > PURPOSES[purpose], "the worker lived through everything"
    assert_fences_grow(log.read_bytes())


async def finish(workshop: Workshop, death: Death) -> None:
    """Let another worker take over what the dead one held, and end everything."""
    await until(lambda: workshop.ledger.end_sessions() == 0)
    workshop.ledger.expire()
    worker = workshop.begin(types=types_of(death))
    await until(lambda: workshop.ledger.live() == 0)
    report = await worker.stop()
    assert report.abandoned == 0
    assert workshop.ledger.leases() == []


def assert_fences_grow(log: bytes) -> None:
    """Every start of a job has a higher fence than the one before it."""
    last: dict[str, int] = {}
    for line in log.splitlines():
        job_id, _, fence = msgspec.json.decode(line, type=tuple[str, int, int])
        assert fence > last.get(job_id, 0)
        last[job_id] = fence
    assert last
