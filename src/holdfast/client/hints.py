"""Sends a producer's hints once its transaction has committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.core.errors import HoldfastError
from holdfast.notify.base import Hint, Notifier

log = logging.getLogger("holdfast.client")


class HintSender:
    """Hands hints to the notifier, which is created with the first of them."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._is_reported = False
        self._gathered: ContextVar[dict[Hint, None] | None] = ContextVar(
            "holdfast_hints", default=None
        )

    def send(self, hints: Iterable[Hint]) -> None:
        """Send what a commit has changed; never waits and never raises."""
        gathered = self._gathered.get()
        if gathered is not None:
            gathered.update(dict.fromkeys(hints))
            return
        try:
            notifier = self._notifier()
        except HoldfastError as error:
            # What the hints are about is committed: an error now would make the caller do it again.
            if not self._is_reported:
                self._is_reported = True
                log.error("hints are not sent, workers find jobs by polling: %s", error)
            return
        notifier.send(list(hints))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold hints back until the block ends, however many transactions commit in it; blocks may be nested."""
        outer = self._gathered.get()
        if outer is not None:
            yield
            return
        token = self._gathered.set({})
        try:
            yield
        finally:
            gathered = self._gathered.get()
            self._gathered.reset(token)
            if gathered:
                self.send(gathered)


@dataclass(frozen=True, slots=True)
class SendHints:
    """Sends hints when called, after a commit; equal ones need sending only once."""

    sender: HintSender
    hints: tuple[Hint, ...]

    def __call__(self) -> None:
        """Send them."""
        self.sender.send(self.hints)
