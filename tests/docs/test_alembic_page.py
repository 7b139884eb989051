"""The page about Alembic works as printed, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import blocks
from tests.docs.walk import walking

PAGE = "docs/do/alembic.md"


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("server", [None, "postgres_url"], ids=["sqlite", "postgres"])
def test_autogenerate_leaves_our_tables_alone(
    tmp_path: Path, server: str | None, request: pytest.FixtureRequest
) -> None:
    variables = {} if server is None else {"HOLDFAST_URL": str(request.getfixturevalue(server))}
    with walking(tmp_path, variables) as reader:
        printed = [reader.follow(block) for block in blocks(PAGE)]
    assert "No new upgrade operations detected" in printed[-1]
    (migration,) = (tmp_path / "migrations" / "versions").glob("*_orders.py")
    written = migration.read_text(encoding="utf-8")
    assert "create_table('orders'" in written
    assert "drop_table('orders')" in written
    assert written.count("drop_table") == 1
