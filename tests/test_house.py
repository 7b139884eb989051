"""One name, one meaning: what a newcomer greps for is there once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"

MIRRORS = ("cli", "contrib", "testing/conformance", "bench/peers")
"""Their modules are named after what they are about: a command, a contract."""

PARALLEL = (
    # a module for each noun: jobs, chains, cycles and so on
    {
        "admin",
        "client",
        "commands",
        "storage/sqlite",
        "storage/store",
        "web/api",
        "web/pages",
    },
    # a module for each database or library
    {"client/adapters", "notify", "observe", "scheduler/doctor"},
    # the same parts for each dialect
    {".", "core", "storage", "storage/postgres", "storage/sqlite"},
    # a package with a command of its own
    {"bench", "demo"},
)
"""Folders in which the same name means the same thing."""


def modules() -> Iterator[tuple[str, Path]]:
    """Every module with its folder."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.parent.relative_to(SOURCE).as_posix(), path


def test_no_class_name_occurs_twice() -> None:
    homes = defaultdict(list)
    for folder, path in modules():
        if folder.startswith("bench/peers"):
            continue  # programs of their own, in the words of other queues
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path.relative_to(SOURCE).as_posix())
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_module_name_occurs_twice_outside_parallel_folders() -> None:
    homes = defaultdict(set)
    for folder, path in modules():
        if not path.stem.startswith("__") and not folder.startswith(MIRRORS):
            homes[path.stem].add(folder)
    assert {
        name: sorted(folders)
        for name, folders in homes.items()
        if len(folders) > 1 and not any(folders <= parallel for parallel in PARALLEL)
    } == {}
