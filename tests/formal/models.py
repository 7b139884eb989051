"""Reads the models in formal/: their variants, what each must do, and the statements that actions model."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "formal"
STORES = ("postgres", "sqlite")

_FAILS = re.compile(r"^\\\* Fails: (\w+)$", re.M)
_BROKEN = re.compile(r"^\\\* Broken: (.+)$", re.M)
_BUG = re.compile(r'Bug = "([\w-]+)"')
_CHECKED = re.compile(r"^(?:INVARIANTS?|PROPERT(?:Y|IES)) (.+)$", re.M)
_NAME = re.compile(r"^-- (?:name|fragment): (\w+)$", re.M)
_DEFINED = re.compile(r"^([A-Z]\w*)(?:\([\w, ]*\))? ==", re.M)
_NOTE = re.compile(r"^\\\* (postgres|sqlite|no statement): (.+)$")


class Variant(NamedTuple):
    """A model as one configuration has it: right, or broken in one way."""

    model: str
    name: str
    path: Path
    checked: tuple[str, ...]
    fails: str | None
    broken: str | None
    bug: str

    @property
    def expected(self) -> str:
        return f"fails {self.fails}" if self.fails else "passes"


class Action(NamedTuple):
    """An action of a model, with the statements that it models by store; `event` is what happens without one."""

    model: str
    name: str
    statements: dict[str, tuple[str, ...]]
    event: str | None


def models() -> list[str]:
    """The names of all modules."""
    return sorted(path.stem for path in FOLDER.glob("*.tla"))


def variants() -> list[Variant]:
    """Every configuration; the right ones first, which take longest."""
    found = [_variant(path) for path in sorted(FOLDER.glob("*.cfg"))]
    return sorted(found, key=lambda each: (each.fails is not None, each.model, each.name))


def _variant(path: Path) -> Variant:
    model, _, name = path.stem.partition(".")
    text = path.read_text(encoding="utf-8")
    fails, broken, bug = _FAILS.search(text), _BROKEN.search(text), _BUG.search(text)
    return Variant(
        model,
        name or "whole",
        path,
        tuple(each for line in _CHECKED.findall(text) for each in line.split()),
        fails and fails[1],
        broken and broken[1],
        bug[1] if bug else "",
    )


def actions(model: str) -> Iterator[Action]:
    """The actions that the next-state relation of a model is made of."""
    text = (FOLDER / f"{model}.tla").read_text(encoding="utf-8")
    defined = set(_DEFINED.findall(text))
    relation = text[text.index("\nNext ==\n") + 1 :].split("\n\n")[0]
    lines = text.splitlines()
    for name in sorted(set(re.findall(r"\b[A-Z]\w*", relation)) & defined - {"Next"}):
        if name in _CONSTANT_SETS:
            continue
        place = next(i for i, line in enumerate(lines) if re.match(rf"{name}(?:\(.*\))? ==", line))
        yield _action(model, name, lines[:place])


_CONSTANT_SETS = ("Tokens", "Hows")
"""What a next-state relation names beside its actions."""


def _action(model: str, name: str, before: list[str]) -> Action:
    statements: dict[str, tuple[str, ...]] = {}
    event = None
    for line in reversed(before):
        note = _NOTE.match(line)
        if note is None:
            break
        if note[1] == "no statement":
            event = note[2]
        else:
            statements[note[1]] = tuple(note[2].split(", "))
    return Action(model, name, statements, event)


@cache
def statements(store: str) -> frozenset[str]:
    """The names of all statements and fragments of a store, those of extensions included."""
    files = [
        path
        for path in (ROOT / "packages").glob("*/src/**/*.sql")
        if store in path.parts and "migrations" not in path.parts
    ]
    return frozenset(
        name for path in files for name in _NAME.findall(path.read_text(encoding="utf-8"))
    )
