"""On every kind of connection: a job exists if and only if the transaction that created it committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import Holdfast
from tests.client.conftest import KINDS, Heard
from tests.client.connection_types.held import Held, Kind

pytestmark = pytest.mark.parametrize(
    ("kind", "dialect"), [pytest.param(each, each.dialect, id=each.name) for each in KINDS]
)


def started(app: Holdfast) -> list[str]:
    return sorted(each.type for each in app.jobs.list())


async def test_commit_keeps_the_business_row_and_the_job(
    app: Holdfast, held: Held, sales: Callable[[], int]
) -> None:
    await held.sell()
    chain = await held.start(app, "kept", {"n": 1}, key="k")
    assert started(app) == []
    await held.commit()
    assert sales() == 1
    assert started(app) == ["kept"]
    found = app.chains.get(chain.id)
    assert (found.state, found.input, found.key) == ("pending", {"n": 1}, "k")


async def test_the_job_may_come_before_the_business_row(
    app: Holdfast, held: Held, sales: Callable[[], int]
) -> None:
    await held.start(app, "kept")
    await held.sell()
    await held.commit()
    assert (sales(), started(app)) == (1, ["kept"])


async def test_rollback_keeps_neither(
    app: Holdfast, held: Held, heard: Heard, sales: Callable[[], int]
) -> None:
    await held.sell()
    await held.start(app, "undone")
    await held.rollback()
    assert (sales(), started(app), heard.hints) == (0, [], [])


async def test_a_rollback_undoes_a_job_that_came_first(
    app: Holdfast, held: Held, sales: Callable[[], int]
) -> None:
    await held.start(app, "undone")
    await held.sell()
    await held.rollback()
    assert (sales(), started(app)) == (0, [])


async def test_rollback_to_a_savepoint_drops_only_its_part(
    app: Holdfast, held: Held, kind: Kind, heard: Heard, sales: Callable[[], int]
) -> None:
    await held.start(app, "before")
    await held.sell()
    await held.savepoint()
    await held.start(app, "within")
    await held.sell()
    await held.undo_savepoint()
    await held.start(app, "after")
    await held.commit()
    assert (sales(), started(app)) == (1, ["after", "before"])
    if kind.tells_of_commit:
        assert sorted(heard.types) == ["after", "before"]


async def test_a_savepoint_that_is_kept_keeps_its_part(
    app: Holdfast, held: Held, kind: Kind, heard: Heard
) -> None:
    await held.start(app, "before")
    await held.savepoint()
    await held.start(app, "within")
    await held.keep_savepoint()
    assert heard.hints == []
    await held.commit()
    assert started(app) == ["before", "within"]
    if kind.tells_of_commit:
        assert sorted(heard.types) == ["before", "within"]
