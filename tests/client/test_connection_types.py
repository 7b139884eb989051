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


def signalled(app: Holdfast) -> list[tuple[str, str, str]]:
    found = app.database.read(app.database.store.signals.list(10))
    return sorted((each.name, each.key, each.data) for each in found)


async def test_a_signal_exists_if_its_transaction_commits(
    app: Holdfast, held: Held, kind: Kind, heard: Heard, sales: Callable[[], int]
) -> None:
    await held.sell()
    assert await held.signal(app, "paid", key=7, data={"n": 1}, id="webhook 1")
    assert not await held.signal(app, "paid", key=7, data={"n": 2}, id="webhook 1")
    assert (signalled(app), heard.hints) == ([], [])
    await held.commit()
    assert (sales(), signalled(app)) == (1, [("paid", "7", '{"n":1}')])
    if kind.tells_of_commit:
        assert ("signal", "paid") in [(each.kind, each.type) for each in heard.hints]


async def test_a_signal_that_was_rolled_back_never_existed(
    app: Holdfast, held: Held, heard: Heard
) -> None:
    await held.signal(app, "paid", key=7)
    await held.rollback()
    assert (signalled(app), heard.hints) == ([], [])


async def test_a_rollback_to_a_savepoint_drops_the_signals_sent_in_it(
    app: Holdfast, held: Held
) -> None:
    await held.signal(app, "paid", key=7)
    await held.savepoint()
    await held.signal(app, "paid", key=8)
    await held.undo_savepoint()
    await held.commit()
    assert signalled(app) == [("paid", "7", "null")]
