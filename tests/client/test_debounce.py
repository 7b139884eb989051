"""Debounced starts as a caller asks for them: what they answer, and what is refused before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Chain, Holdfast, Start
from holdfast.core.errors import InvalidDuration, InvalidOption

QUIET: dict[str, Any] = {"debounce": "30s", "latest": "5m"}


def start(app: Holdfast, input: Any, key: str = "doc:7", **options: Any) -> Chain:
    with app.transaction() as tx:
        return app.start(tx, "doc.reindex", input, key=key, **options)


async def test_starts_of_one_key_share_a_chain_that_waits_for_quiet(app: Holdfast) -> None:
    first, again = start(app, 1, **QUIET), start(app, 2, **QUIET)
    assert (first.deduplicated, again.deduplicated) == (False, True)
    assert (again.id, again.state) == (first.id, "pending")
    (job,) = app.jobs.list()
    assert job.planned_at is not None
    assert (job.planned_at - job.created_at).total_seconds() == pytest.approx(30, abs=5)


async def test_an_async_connection_awaits_it(app: Holdfast) -> None:
    async with app.transaction() as tx:
        first = await app.start(tx, "doc.reindex", 1, key="doc:7", debounce="30s")
        again = await app.start(tx, "doc.reindex", 2, key="doc:7", debounce="30s")
    assert (again.id, again.deduplicated) == (first.id, True)


async def test_many_are_started_at_once_and_the_last_of_each_key_counts(app: Holdfast) -> None:
    with app.transaction() as tx:
        chains = app.start_many(tx, "doc.reindex", [1, 2, 3], keys=["a", "b", "a"], **QUIET)
    assert (chains[0].id, chains[1].id != chains[0].id) == (chains[2].id, True)
    assert [each.deduplicated for each in chains] == [False, False, True]
    with app.transaction() as tx:
        mixed = app.start_all(
            tx,
            [
                Start("doc.reindex", 4, key="a", **QUIET),
                Start("mail.send", 5, key="a"),
                Start("doc.reindex", 6, key="c", **QUIET),
                Start("mail.send", 7),
            ],
        )
    assert [each.deduplicated for each in mixed] == [True, False, False, False]
    assert [each.type for each in mixed] == ["doc.reindex", "mail.send"] * 2
    assert mixed[0].id == chains[0].id


async def test_a_start_without_debounce_shares_the_chain_and_leaves_its_input(
    app: Holdfast,
) -> None:
    first = start(app, 1, **QUIET)
    again = start(app, 2)
    assert (again.id, again.deduplicated, again.input) == (first.id, True, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latest": "5m"}, "latest needs debounce"),
        ({"debounce": "30s", "latest": "10s"}, "latest is shorter than debounce"),
        ({"debounce": 0}, "would not wait"),
        ({"debounce": "30s", "scope": "any"}, "scope cannot be combined with debounce"),
        ({"debounce": "30s", "window": "1m"}, "window cannot be combined with debounce"),
        ({"debounce": "30s", "after": "1m"}, "after cannot be combined with debounce"),
        ({"debounce": "30s", "at": datetime.now(UTC)}, "at cannot be combined with debounce"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    app: Holdfast, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message) as refusal:
        start(app, 1, **options)
    assert (refusal.value.code, bool(refusal.value.help)) == ("HF073", True)
    assert len(app.jobs.list()) == 0


async def test_it_needs_a_key_and_makes_its_ids_itself(app: Holdfast) -> None:
    earlier = start(app, 0, key="earlier")
    with app.transaction() as tx:
        with pytest.raises(InvalidOption, match="debounce need a key") as refusal:
            app.start(tx, "doc.reindex", 1, debounce="30s")
        assert "add the key" in refusal.value.help
        with pytest.raises(InvalidOption, match="debounce need keys") as refusal:
            app.start_many(tx, "doc.reindex", [1], debounce="30s")
        assert "add keys=" in refusal.value.help
        with pytest.raises(InvalidOption, match="debounce needs a key"):
            app.start_many(tx, "doc.reindex", [1, 2], keys=["a", None], debounce="30s")
        with pytest.raises(InvalidOption, match="id cannot be combined with debounce"):
            app.start(tx, "doc.reindex", 1, key="a", id=app.new_id("a"), debounce="30s")
        with pytest.raises(InvalidOption, match="blockers cannot be combined with debounce"):
            app.start(tx, "doc.reindex", 1, key="a", blockers=[earlier], debounce="30s")
        with pytest.raises(InvalidOption, match="exclude cannot be combined with debounce"):
            app.start(tx, "doc.reindex", 1, key="a", exclude=[earlier], debounce="30s")
        with pytest.raises(InvalidDuration):
            app.start(tx, "doc.reindex", 1, key="a", debounce="soon")
    assert len(app.jobs.list()) == 1
