"""On every kind of connection: a key counts as used if and only if the transaction that used it committed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.errors import InvalidOption
from tests.client.conftest import KINDS
from tests.client.connection_types.held import Held

of_every_kind = pytest.mark.parametrize(
    ("kind", "dialect"), [pytest.param(each, each.dialect, id=each.name) for each in KINDS]
)


async def use(app: Holdfast, held: Held, key: str = "billing:2026-11-16") -> bool:
    answer: Any = app.use_key(held.tx, "POST /billing", key)
    first: bool = answer if isinstance(answer, bool) else await answer
    return first


@of_every_kind
async def test_a_key_is_used_once_if_the_transaction_commits(app: Holdfast, held: Held) -> None:
    assert await use(app, held)
    assert not await use(app, held)
    assert await use(app, held, "billing:2026-11-17")
    await held.sell()
    await held.commit()
    with app.transaction() as tx:
        assert not app.use_key(tx, "POST /billing", "billing:2026-11-16")
        assert app.use_key(tx, "POST /reminders", "billing:2026-11-16")


@of_every_kind
async def test_after_a_rollback_it_is_unused(app: Holdfast, held: Held) -> None:
    assert await use(app, held)
    await held.sell()
    await held.rollback()
    with app.transaction() as tx:
        assert app.use_key(tx, "POST /billing", "billing:2026-11-16")


@pytest.mark.parametrize(("scope", "key"), [("", "k"), ("s", ""), ("s", "a\0b"), ("s", "k" * 5000)])
async def test_scope_and_key_must_be_texts_that_both_databases_keep(
    app: Holdfast, scope: str, key: str
) -> None:
    with app.transaction() as tx, pytest.raises(InvalidOption):
        app.use_key(tx, scope, key)
