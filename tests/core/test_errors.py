"""Errors: codes are unique and explained, and both written forms hold together."""

from __future__ import annotations

import copy
import re
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.core import errors
from holdfast.core.errors import (
    Busy,
    HeartbeatTooSlow,
    HoldfastError,
    InvalidDuration,
    LeaseLost,
    NoTransaction,
    Permanent,
    StillReferenced,
)
from holdfast.extensions import explain_codes, modules_of


def _classes() -> list[type[HoldfastError]]:
    exported = (getattr(errors, name) for name in errors.__all__)
    return [each for each in exported if isinstance(each, type) and issubclass(each, HoldfastError)]


def _classes_of_extensions() -> list[type[HoldfastError]]:
    modules = [import_module(each) for each in modules_of("errors")]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    ]


CODED = [
    each
    for each in (*_classes(), *_classes_of_extensions())
    if "code" in each.__dict__ and each.code
]


def test_no_two_classes_share_a_code() -> None:
    codes = [each.code for each in CODED]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", CODED, ids=lambda kind: kind.__name__)
def test_every_code_is_explained(kind: type[HoldfastError]) -> None:
    explanation = explain_codes()[kind.code]
    assert explanation.name == kind.__name__
    assert re.fullmatch(r"HF(0[1-9]|[12][0-9])\d", explanation.code)
    assert explanation.title
    assert len(explanation.text) > 40
    assert explanation.fix


def test_the_catalogue_contains_nothing_but_exported_classes() -> None:
    assert set(explain_codes()) == {each.code for each in CODED}


def test_every_class_with_a_code_is_used_somewhere() -> None:
    packages = Path(errors.__file__).parents[4]
    texts = [each.read_text() for each in packages.rglob("src/**/*.py") if each.name != "errors.py"]
    words = set(re.findall(r"\w+", " ".join(texts)))
    assert [kind.__name__ for kind in CODED if kind.__name__ not in words] == []


def test_str_is_one_line_with_code_message_and_help() -> None:
    error = NoTransaction("no transaction\nis open", help="call connection.begin() first")
    assert str(error) == "[HF030] no transaction is open (call connection.begin() first)"


def test_the_general_fix_is_the_help_unless_told_otherwise() -> None:
    assert NoTransaction("…").help == NoTransaction.fix
    assert NoTransaction("…", help="").help == ""


def test_render_shows_details_rule_and_help_below_the_message() -> None:
    error = HeartbeatTooSlow(
        "heartbeat is too slow for the lease",
        details=["A=20000 (env)   B=30000 (default)"],
        rule="heartbeat < lease / 3",
        help="set A=9000",
    )
    assert error.render() == (
        "error[HF017]: heartbeat is too slow for the lease\n"
        "  A=20000 (env)   B=30000 (default)\n"
        "  rule: heartbeat < lease / 3\n"
        "  help: set A=9000"
    )


def test_busy_reads_its_delay_and_refuses_a_bad_one() -> None:
    assert Busy("1m30s").delay_ms == 90_000
    assert "next attempt in 1m30s" in str(Busy(90))
    assert "next attempt" not in str(Busy(90, "429", key=True))
    with pytest.raises(InvalidDuration):
        Busy("soon")


def test_permanent_can_be_raised_without_arguments_and_adds_nothing_to_the_message() -> None:
    assert str(Permanent("card declined")) == "[HF053] card declined"
    with pytest.raises(Permanent, match="failed permanently"):
        raise Permanent


@pytest.mark.parametrize(
    "error",
    [LeaseLost("not_found"), Busy("30s"), StillReferenced("refused", ["a", "b"])],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_keeps_every_attribute(error: HoldfastError) -> None:
    twin = copy.copy(error)
    assert type(twin) is type(error)
    assert twin.__dict__ == error.__dict__
    assert str(twin) == str(error)


def test_still_referenced_lists_the_references() -> None:
    error = StillReferenced("chain c is a blocker", ["j1", "j2"])
    assert error.references == ("j1", "j2")
    assert "job j2 waits for it" in error.render()
