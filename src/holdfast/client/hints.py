"""Hints of a producer: which job types may be due, sent once the transaction has committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.notify.port import Hint, Notifier


class HintSender:
    """Hands hints to the notifier, which is made at the first of them."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier

    def send_due(self, types: Iterable[str]) -> None:
        """Say that jobs of these types may be due; never waits and never raises."""
        self._notifier().send([Hint("due", each) for each in sorted(types)])


@dataclass(frozen=True, slots=True)
class Hints:
    """What is to be said after a commit, and through whom."""

    sender: HintSender
    types: frozenset[str]

    def send(self) -> None:
        """Say it."""
        self.sender.send_due(self.types)
