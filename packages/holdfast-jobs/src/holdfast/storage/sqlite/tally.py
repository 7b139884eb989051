"""What operations of several statements share: the counts per type that they append, patterns as globs."""

from __future__ import annotations

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import TerminalState
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.pagination import JobQuery
from holdfast.storage.store.params import document

_GLOB_SPECIAL = "*?["


class Tally:
    """The counts of one operation."""

    def __init__(self) -> None:
        self._counts: dict[str, TallyRow] = {}

    def of(self, type: str) -> TallyRow:
        """The row of a type, to be counted up."""
        count = self._counts.get(type)
        if count is None:
            count = self._counts[type] = TallyRow(type)
        return count

    def write(self, now: Instant | None) -> Op[None]:
        """Append what was counted, if anything was."""
        if self._counts:
            rows = document(list(self._counts.values()))
            yield Statement("tally_add", {"rows": rows, "now": now})


class TallyRow(msgspec.Struct, omit_defaults=True):
    """One row of the tally."""

    type: str
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    reaped: int = 0
    removed: int = 0

    def end(self, state: TerminalState, number: int = 1) -> None:
        """Count jobs that ended in a state; below zero takes back what was counted."""
        setattr(self, state, getattr(self, state) + number)


def page_params(query: JobQuery) -> dict[str, Value]:
    """The parameters of a page, with the patterns of types and keys as globs."""
    globs = {"type_glob": glob_of(query.type_like), "key_glob": glob_of(query.key_like)}
    return query.params() | globs


def glob_of(like: str | None) -> str | None:
    """Write a LIKE pattern, whose escape is the backslash, as the glob that matches the same texts."""
    if like is None:
        return None
    glob = []
    characters = iter(like)
    for each in characters:
        if each == "%":
            glob.append("*")
        elif each == "_":
            glob.append("?")
        else:
            literal = next(characters, each) if each == "\\" else each
            glob.append(f"[{literal}]" if literal in _GLOB_SPECIAL else literal)
    return "".join(glob)
