"""The claimer knows its sources by their interface alone."""

import ast
import inspect

import pytest

from holdfast.worker import claimer
from holdfast.worker.claims import ClaimSource
from holdfast.worker.limited_claims import LimitedClaims
from holdfast.worker.plain_claims import PlainClaims

METHODS = [name for name in vars(ClaimSource) if not name.startswith("_")]


@pytest.mark.parametrize("source", [PlainClaims, LimitedClaims])
def test_each_source_of_claims_has_the_methods_of_the_interface(source: type[object]) -> None:
    def parameters(of: object, name: str) -> list[str]:
        return list(inspect.signature(getattr(of, name)).parameters)

    assert METHODS
    assert {name: parameters(source, name) for name in METHODS} == {
        name: parameters(ClaimSource, name) for name in METHODS
    }


def test_the_loop_of_the_claimer_names_no_source() -> None:
    tree = ast.parse(inspect.getsource(claimer.Claimer))
    naming = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr in ("_plain", "_limited")
    }
    assert naming == {"__init__", "note_partitions"}
