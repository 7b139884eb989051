"""A worker dies before or after every statement of a function; another one goes on, and rows and records agree."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crashing import Death
from tests.steps.crashing import types_of
from tests.steps.functions import records, send
from tests.support.forking import Forker
from tests.support.until import until
from tests.worker.workshop import Workshop

MOMENTS = {
    ("steps", "function"): 6,
    ("steps", "undone"): 1,
    ("transaction", "function"): 4,
    ("transaction", "undone"): 4,
    # Between the record of a wait and parking, and after it.
    ("complete", "function"): 4,
    # The claim before an attempt, the reading of the records, and the routing of the signal.
    ("claim", "function"): 4,
    ("read", "function"): 2,
    ("reaper", "function"): 2,
}
"""Each purpose and type with the fewest moments in which a worker can die."""


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    """One for all tests."""
    forker = Forker("tests.steps.crashing")
    yield forker
    forker.close()


@pytest.mark.parametrize(("purpose", "type"), MOMENTS)
async def test_rows_and_records_commit_together_whenever_a_worker_dies(
    workshop: Workshop,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    forker: Forker,
    purpose: str,
    type: str,
) -> None:
    is_postgres = workshop.store.dialect == "postgresql"
    url = request.getfixturevalue("worker_url") if is_postgres else str(tmp_path / "holdfast.db")
    log = tmp_path / "log"
    log.touch()
    for moment in itertools.count(1):
        death = Death(url, str(log), workshop.ledger.write_effect, purpose, moment)
        job_id = await workshop.start_one(type, moment)
        await send(workshop, "go", moment, moment)
        has_died = await forker.dies(death)
        await until(lambda: workshop.ledger.end_sessions() == 0)
        workshop.ledger.expire()
        worker = workshop.begin(types=types_of(death))
        await until(lambda: workshop.ledger.live() == 0)
        assert (await worker.stop()).abandoned == 0
        record = await workshop.job(job_id)
        found = await records(workshop, job_id)
        effects = [each for each in workshop.ledger.effects() if each.strip("+-ab") == str(moment)]
        if type == "function":
            assert (record.state, record.output) == ("completed", str(moment))
            assert effects == [str(moment)]
            assert {"before", "row", "after", "sleep", f"wait:go[{moment}]"} == set(found)
            (signal,) = await workshop.run(workshop.store.signals.list(1))
            assert signal.taken_by == job_id
        else:
            assert (record.state, record.error) == ("failed", record.error)
            expected = [f"{each}{moment}" for each in ("+a", "+b", "-b", "-a")]
            assert effects == expected
            assert {"undo:first", "undo:second"} <= set(found)
        if not has_died:
            break
    assert moment > MOMENTS[purpose, type], "the worker lived through everything"
    # A plain step runs again only if its worker died between its effect and its record.
    assert max(Counter(log.read_text().splitlines()).values(), default=0) <= 2
