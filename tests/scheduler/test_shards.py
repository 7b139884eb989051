"""Shards: every tenant belongs to exactly one, everywhere the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ShardPairInvalid
from holdfast.scheduler.cycle_run import WHOLE, Shard


@given(st.one_of(st.text(), st.integers(), st.uuids()), st.integers(1, 20))
def test_every_tenant_belongs_to_one_shard(tenant: object, count: int) -> None:
    assert [Shard(index, count).owns(tenant) for index in range(count)].count(True) == 1


def test_the_division_never_changes() -> None:
    assert [each for each in "abcdefgh" if Shard(0, 2).owns(each)] == ["g", "h"]
    assert all(WHOLE.owns(each) for each in range(100))


def test_a_tenant_is_known_by_the_text_of_its_id() -> None:
    assert Shard(1, 3).owns(17) == Shard(1, 3).owns("17")


@pytest.mark.parametrize(("index", "count"), [(-1, 2), (2, 2), (0, 0)])
def test_a_shard_that_does_not_exist_is_refused(index: int, count: int) -> None:
    with pytest.raises(ShardPairInvalid):
        Shard(index, count)


def test_a_shards_name_shows_index_and_count() -> None:
    assert Shard(1, 4).name_of("billing") == "billing:1/4"
