"""Types that count no costs run statements that know of none."""

import re
from typing import Literal

import pytest

from holdfast.storage.sql_loader import dialect_statements

COST = re.compile(r"\bcosts?\b|\bspent = null\b|holdfast[._]charge\b|\bcost_\w+")
STARTS_IN_PARTITIONS = {
    "postgres": {"job_insert_limited", "job_finish", "job_end", "limit_enqueue"},
    "sqlite": {"job_insert", "job_continue"},
}
"""They write one column more."""
UPKEEP = {"limit_sweep", "limit_sweep_charges", "dead_rows", "sweep"}
UPKEEP |= {"verify_limits_hold", "verify_permits_are_recorded"}


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_only_statements_for_costs_know_of_them(dialect: Literal["postgres", "sqlite"]) -> None:
    texts = dialect_statements(dialect)
    knowing = {name for name, text in texts.items() if COST.search(_without_comments(text))}
    own = {name for name in texts if name.endswith("_by_cost") or name.startswith("cost_")}
    own |= {"limit_cost_room", "limit_charge", "limit_charge_past", "limit_put_costs"}
    assert knowing - own - UPKEEP == STARTS_IN_PARTITIONS[dialect]


def test_the_claim_that_counts_costs_is_the_other_one_and_more() -> None:
    texts = dialect_statements("postgres")
    more = texts["limit_claim_by_cost"].splitlines()
    for line in _without_comments(texts["limit_claim"]).splitlines():
        assert line in more


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
