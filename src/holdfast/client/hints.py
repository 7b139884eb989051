"""Hints of a producer: which job types may be due, sent once the transaction has committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.notify.port import Hint, Notifier


class HintSender:
    """Hands hints to the notifier, which is made at the first of them."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._gathered: ContextVar[set[str] | None] = ContextVar("holdfast_hints", default=None)

    def send_due(self, types: Iterable[str]) -> None:
        """Say that jobs of these types may be due; never waits and never raises."""
        gathered = self._gathered.get()
        if gathered is not None:
            gathered.update(types)
        else:
            self._notifier().send([Hint("due", each) for each in sorted(types)])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold hints back until the block ends, however many transactions commit in it; blocks may be nested."""
        outer = self._gathered.get()
        if outer is not None:
            yield
            return
        token = self._gathered.set(set())
        try:
            yield
        finally:
            gathered = self._gathered.get()
            self._gathered.reset(token)
            if gathered:
                self.send_due(gathered)


@dataclass(frozen=True, slots=True)
class Hints:
    """What is to be said after a commit, and through whom."""

    sender: HintSender
    types: frozenset[str]

    def send(self) -> None:
        """Say it."""
        self.sender.send_due(self.types)
