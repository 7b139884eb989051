"""The formal model names statements that exist, and every variant says what must come of it."""

import pytest

from tests.formal.models import STORES, Action, Variant, actions, models, statements, variants

ACTIONS = [action for model in models() for action in actions(model)]
VARIANTS = variants()
FEWEST_BROKEN = 3


def _name(of: Action | Variant) -> str:
    return f"{of.model}-{of.name}"


def test_every_part_of_the_protocol_has_a_model() -> None:
    assert models() == ["Failover", "FanIn", "Lease", "Limits", "Lines", "Signals"]


@pytest.mark.parametrize("action", ACTIONS, ids=_name)
def test_an_action_names_statements_that_exist(action: Action) -> None:
    for store, names in action.statements.items():
        assert set(names) <= statements(store), f"{store} has none of that name"


@pytest.mark.parametrize("action", ACTIONS, ids=_name)
def test_an_action_is_a_statement_or_says_what_else_it_is(action: Action) -> None:
    if action.event is None:
        # What only a server has, such as a standby, has no statement on SQLite.
        needed = STORES[:1] if action.model == "Failover" else STORES
        assert set(needed) <= set(action.statements)
    else:
        assert not action.statements


def test_a_statement_that_is_gone_is_found() -> None:
    assert "job_claim" in statements("postgres")
    assert "job_claim_poll" not in statements("postgres")
    assert "job_claim_poll" in statements("sqlite")


@pytest.mark.parametrize("variant", VARIANTS, ids=_name)
def test_a_variant_is_right_or_fails_by_one_property(variant: Variant) -> None:
    if variant.fails is None:
        assert variant.bug == "none"
        assert variant.checked
    else:
        assert variant.bug == variant.name
        assert variant.broken
        # TLC does not say which of several temporal properties failed.
        assert variant.checked == (variant.fails,)


@pytest.mark.parametrize("model", models())
def test_a_model_has_variants_that_must_fail(model: str) -> None:
    mine = [each for each in VARIANTS if each.model == model]
    assert sum(each.fails is not None for each in mine) >= FEWEST_BROKEN
    checked = {name for each in mine if each.fails is None for name in each.checked}
    assert checked >= {each.fails for each in mine if each.fails is not None}


@pytest.mark.parametrize("model", models())
def test_a_property_of_a_model_can_fail(model: str) -> None:
    mine = [each for each in VARIANTS if each.model == model]
    checked = {name for each in mine if each.fails is None for name in each.checked}
    assert checked <= {each.fails for each in mine}
