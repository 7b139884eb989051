"""What a reaper, and who finds that a clock ran ahead, leave in the rows of jobs: where they wait, and until when."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.commands.retention import FIRST_ID
from tests.support.job_rows import NOW, SECOND, attempt, job, lease, live, step
from tests.support.tables import Planted

LATER = NOW + 5 * SECOND


@pytest.fixture(params=["postgres", "sqlite"])
def rows(request: pytest.FixtureRequest) -> Iterator[Planted]:
    rows = Planted(request.getfixturevalue(f"{request.param}_url"))
    yield rows
    rows.close()


def times(rows: Planted) -> dict[int, tuple[Any, ...]]:
    """When jobs are due, at which place, and until when they rest."""
    columns = ("available_at", "gate_at", "rests_until")
    found = rows.rows("queue", "job_id")
    return {int(id[-12:]): tuple(row[name] for name in columns) for (id,), row in found.items()}


def reaped(rows: Planted, *given: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Their times after the death of their worker."""
    ids: Any = [each["job_id"] for each in given]
    rows.plant("job", *(job(number) for number in range(1, len(given) + 1)))
    rows.plant("queue", *given)
    named = ids if rows.is_postgres else str(ids).replace("'", '"')
    ends = {"lease_ms": 1_000, "backoff_base_ms": 2_000, "backoff_cap_ms": 9_000}
    rows.plant("lease", lease(91, job_ids=named, **ends))
    rows.run(rows.app.database.store.leases.reap(10, 3, now=LATER))
    return times(rows)


@pytest.mark.parametrize("crashes", [0, 1])
def test_a_job_is_due_where_it_waits_and_nowhere_else(rows: Planted, crashes: int) -> None:
    common: dict[str, Any] = {"token": 91, "crashes": crashes, "attempt": 1}
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


def test_what_a_clock_that_ran_ahead_has_dated_is_due_where_it_waits(rows: Planted) -> None:
    ahead = NOW + 3_600 * SECOND
    rows.plant("job", *(job(number, created_at=ahead) for number in range(1, 7)))
    gated: dict[str, Any] = {"available_at": None, "gate": "part#a", "gate_at": ahead}
    rows.plant(
        "queue",
        live(1, available_at=ahead),
        live(2, **gated, ordered=False),
        live(3, **gated, ordered=True, rests_until=ahead),
        live(4, **gated, ordered=True, rests_until=NOW - 1),
        live(5, available_at=None, gate="part#b", gate_at=LATER, ordered=False),
        live(6, 96, available_at=None, gate="part#c", gate_at=ahead, ordered=False),
    )
    page = rows.run(rows.app.database.store.leases.heal_queue(FIRST_ID, NOW))
    assert (page.seen, page.healed) == (6, 4)
    assert times(rows) == {
        1: (NOW, None, None),
        2: (None, NOW, None),
        3: (None, NOW, NOW),
        4: (None, NOW, NOW - 1),
        5: (None, LATER, None),
        6: (None, ahead, None),
    }
    if rows.is_postgres:
        polled = {gate: row["since"] for (gate,), row in rows.rows("wakeup", "gate").items()}
        assert polled == {"part#a": NOW, "part#b": LATER}


def test_a_job_that_was_put_off_waits_as_long_from_now_whatever_its_earlier_attempt_was(
    rows: Planted,
) -> None:
    ahead = NOW + 3_600 * SECOND
    rows.plant("job", job(1))
    # Its fence tells when it was claimed.
    rows.plant("queue", live(1, fence=ahead // 1_000, available_at=ahead + SECOND))
    rows.plant("attempt", attempt(1, 5))
    assert rows.run(rows.app.database.store.leases.heal_queue(FIRST_ID, NOW)).healed == 1
    assert times(rows) == {1: (NOW + SECOND, None, None)}


def test_only_an_open_wait_that_a_clock_that_ran_ahead_began_begins_again(rows: Planted) -> None:
    near, ahead = NOW + 60 * SECOND, NOW + 3_600 * SECOND
    given: dict[str, dict[str, Any]] = {
        "open": {"started_at": ahead, "until": ahead + SECOND},
        "done": {"started_at": ahead, "until": ahead + SECOND, "state": "done"},
        "endless": {"started_at": ahead},
        "near": {"started_at": near, "until": near + SECOND},
        "named": {"started_at": ahead, "until": ahead + SECOND, "arguments": 1},
    }
    for name, values in given.items():
        rows.plant("step", step(1, name, **{"state": "open", "kind": "sleep", **values}))
    rows.run(rows.app.database.store.leases.heal(NOW))
    found = rows.rows("step", "name")
    times = {name: (row["started_at"], row["until"]) for (name,), row in found.items()}
    assert times == {
        **{name: (each["started_at"], each.get("until")) for name, each in given.items()},
        "open": (NOW, NOW + SECOND),
    }
