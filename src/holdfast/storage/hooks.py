"""What is to be done after a commit. Hooks follow savepoints: what was rolled back to one is forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Hook: TypeAlias = Callable[[], None]

_SAVEPOINT = re.compile(
    r"""(?:^|;) (?:\s | --[^\n]*\n | /\*.*?\*/)*
    (?: (?P<open> savepoint) | (?P<release> release) (?:\s+savepoint)?
      | (?P<undo> rollback) (?:\s+(?:work|transaction))? \s+to (?:\s+savepoint)? )
    \s+ (?P<name> "(?:[^"]|"")+" | \w+ )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


class Hooks:
    """The hooks of one transaction, in the order in which they came."""

    __slots__ = ("_hooks", "_marks")

    def __init__(self) -> None:
        self._hooks: list[Hook] = []
        self._marks: list[tuple[str, int]] = []

    def add(self, hook: Hook) -> None:
        """Have something done after the commit; an equal hook that came just before is enough."""
        if not self._hooks or self._hooks[-1] != hook:
            self._hooks.append(hook)

    def run(self) -> None:
        """Do what was asked for; the transaction has committed."""
        for hook in self._hooks:
            hook()

    def savepoint(self, name: str) -> None:
        """A savepoint was opened."""
        self._marks.append((name, len(self._hooks)))

    def undo(self, name: str) -> None:
        """The transaction was rolled back to a savepoint, which stays open."""
        place = self._place(name)
        if place is not None:
            del self._hooks[self._marks[place][1] :]
            del self._marks[place + 1 :]

    def release(self, name: str) -> None:
        """A savepoint was given up; what was done in it belongs to what is around it."""
        place = self._place(name)
        if place is not None:
            del self._marks[place:]

    @contextmanager
    def part(self, undone: bool = False) -> Iterator[None]:
        """Keep what comes in a block that is a savepoint, unless it fails or is undone in any case."""
        hooks, marks = len(self._hooks), len(self._marks)
        keep = False
        try:
            yield
            keep = not undone
        finally:
            del self._marks[marks:]
            if not keep:
                del self._hooks[hooks:]

    def heed(self, text: str) -> None:
        """Follow the savepoints of a statement that the caller has run."""
        for found in _SAVEPOINT.finditer(text):
            name = _folded(found["name"])
            if found["open"]:
                self.savepoint(name)
            elif found["undo"]:
                self.undo(name)
            else:
                self.release(name)

    def _place(self, name: str) -> int | None:
        """Find the innermost savepoint of a name."""
        for place in reversed(range(len(self._marks))):
            if self._marks[place][0] == name:
                return place
        return None


def _folded(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
