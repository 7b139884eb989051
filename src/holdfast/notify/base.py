"""Keeps a notifier's threads safe from the callbacks that they run.

What a notifier is. A hint may be lost or doubled, and it never carries work.

The hint that wakes the background mode: something about a cycle has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

log = logging.getLogger("holdfast.notify")


def guarded(on_hint: OnHint) -> OnHint:
    """Return a callback that never raises; the first error of the given one is logged."""
    reported = False

    def call(hint: Hint) -> None:
        nonlocal reported
        try:
            on_hint(hint)
        except Exception:
            if not reported:
                reported = True
                log.exception("a callback for hints failed; its next errors are not logged")

    return call


HintKind = Literal["due", "look", "lost", "ended", "awaited"]

ANY = "*"
"""In place of a type: all of them."""


class Hint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something worth a look.

    due: jobs of `type` may be due. look: look for `type` from the start, it may lie before the mark.
    lost: `worker` no longer holds the jobs `ids`. ended: the chains `ids` ended, for those who wait.
    awaited: somebody waits for the chains `ids`, and would like to hear of their end.
    Without ids, or with the type `*`, a hint is wider: look at all that it could mean.
    """

    kind: HintKind = msgspec.field(name="k")
    type: str = msgspec.field(name="t", default="")
    worker: str = msgspec.field(name="w", default="")
    ids: tuple[str, ...] = msgspec.field(name="i", default=())


LOOK_EVERYWHERE = Hint("look", ANY)
"""Hints of every kind may have been missed, so it also stands for those that name a worker or chains."""

OnHint = Callable[[Hint], None]
"""Called on a thread of the notifier; it must return at once, as `loop.call_soon_threadsafe` does."""


@dataclass(frozen=True, slots=True)
class SendCounts:
    """What became of the hints handed to a notifier: batches that left, hints that were given up."""

    batches: int = 0
    dropped: int = 0


class Listener(Protocol):
    """An ear of one process.

    Whenever hints may have been missed, because a connection was made or was lost, it calls back
    with LOOK_EVERYWHERE.
    """

    @property
    def alive(self) -> bool:
        """Whether hints were proven to arrive not long ago; while they are not, poll more often."""

    @property
    def reconnects(self) -> int:
        """How often a lost connection was made again."""

    def wait_until_alive(self, timeout: float) -> bool:
        """Wait until hints are proven to arrive; False when that took too long."""

    def close(self) -> None:
        """Stop listening and leave nothing behind. Not for use inside the callback."""


class Notifier(Protocol):
    """Sends and receives hints. All methods may be called from any thread."""

    @property
    def counts(self) -> SendCounts:
        """What became of the hints sent so far."""

    def send(self, hints: Sequence[Hint]) -> None:
        """Hand hints over; never waits, never raises: what cannot be sent is dropped and counted."""

    def listen(self, on_hint: OnHint) -> Listener:
        """Call back for every hint that arrives, from now on and until the listener is closed."""

    def close(self) -> None:
        """Send what waits, within a bounded time, close all listeners and leave nothing behind."""


_CYCLE = "cycle:"


def cycle_hint(name: str) -> Hint:
    """Return the hint that a cycle was asked for or resumed; workers take it for a type they do not know."""
    return Hint("due", f"{_CYCLE}{name}")


def is_about_cycles(hint: Hint) -> bool:
    """Say whether a hint concerns cycles."""
    return hint.kind == "due" and hint.type.startswith(_CYCLE)
