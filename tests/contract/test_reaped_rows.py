"""What a reaper leaves in the rows of jobs that it takes back, where they wait."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.job_rows import NOW, SECOND, job, lease, live
from tests.support.tables import Planted

LATER = NOW + 5 * SECOND


@pytest.fixture(params=["postgres", "sqlite"])
def rows(request: pytest.FixtureRequest) -> Iterator[Planted]:
    rows = Planted(request.getfixturevalue(f"{request.param}_url"))
    yield rows
    rows.close()


def reaped(rows: Planted, *given: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """When jobs are due, at which place, and until when they rest, after the death of their worker."""
    ids: Any = [each["job_id"] for each in given]
    rows.plant("job", *(job(number) for number in range(1, len(given) + 1)))
    rows.plant("queue", *given)
    named = ids if rows.is_postgres else str(ids).replace("'", '"')
    ends = {"lease_ms": 1_000, "backoff_base_ms": 2_000, "backoff_cap_ms": 9_000}
    rows.plant("lease", lease(91, job_ids=named, **ends))
    rows.run(rows.app.database.store.leases.reap(10, 3, now=LATER))
    found = rows.rows("queue", "job_id")
    columns = ("available_at", "gate_at", "rests_until")
    return {int(id[-12:]): tuple(row[name] for name in columns) for (id,), row in found.items()}


@pytest.mark.parametrize("crashes", [0, 1])
def test_a_job_is_due_where_it_waits_and_nowhere_else(rows: Planted, crashes: int) -> None:
    common = {"token": 91, "crashes": crashes, "attempt": 1}
    gated = {**common, "available_at": None, "gate": "part#a", "gate_at": NOW}
    found = reaped(
        rows,
        live(1, **common),
        live(2, **gated, ordered=False),
        live(3, **gated, ordered=True, rests_until=NOW + 1),
    )
    due = LATER + 2 * SECOND
    if crashes:
        assert found == {1: (due, None, None), 2: (None, due, None), 3: (None, NOW, due)}
    else:
        assert found == {1: (NOW, None, None), 2: (None, NOW, None), 3: (None, NOW, NOW + 1)}
