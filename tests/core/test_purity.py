"""The core stays pure: no module of it may read a clock, draw randomness, or do I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.core

CORE = Path(holdfast.core.__file__).parent
MODULES = sorted(CORE.rglob("*.py"))

FORBIDDEN_MODULES = frozenset(
    {
        *("asyncio", "concurrent", "contextvars", "ctypes", "glob", "http", "io", "logging"),
        *("multiprocessing", "os", "pathlib", "pickle", "queue", "random", "secrets", "select"),
        *("selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys"),
        *("tempfile", "threading", "time", "urllib", "warnings"),
    }
)
FORBIDDEN_NAMES = frozenset(
    {"open", "print", "input", "eval", "exec", "compile", "breakpoint", "__import__"}
)
FORBIDDEN_ATTRIBUTES = frozenset(
    {"utcnow", "today", "uuid1", "uuid4", "uuid6", "uuid7", "getnode", "urandom"}
)


def _impurities(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if _is_forbidden(each.name))
            case ast.ImportFrom(module=str(module), names=names):
                if _is_forbidden(module):
                    yield module
                yield from (each.name for each in names if each.name in FORBIDDEN_ATTRIBUTES)
            # Fields may be called `input`; only reading such a name is a use of the builtin.
            case ast.Name(id=name, ctx=ast.Load()) if name in FORBIDDEN_NAMES:
                yield name
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in FORBIDDEN_ATTRIBUTES:
                yield name
            # A record may carry the instant it is about as `now`; only calling it asks a clock.
            case ast.Call(func=ast.Attribute(attr="now")):
                yield "now"
            case _:
                pass


def _is_forbidden(module: str) -> bool:
    return module.partition(".")[0] in FORBIDDEN_MODULES


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_of_the_core_is_pure(module: Path) -> None:
    assert list(_impurities(module.read_text("utf-8"))) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_of_the_core_imports_nothing_of_holdfast_but_the_core(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            assert (node.module or "").startswith("holdfast.core"), node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import random",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.date.today()",
        "from uuid import uuid4",
        "import uuid\nuuid.uuid4()",
        "open('x')",
        "print(1)",
        "f = open",
    ],
)
def test_the_check_finds_what_it_forbids(source: str) -> None:
    assert list(_impurities(source))


def test_the_check_sees_the_whole_core() -> None:
    assert len(MODULES) > 15
