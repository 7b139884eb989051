"""What a notifier is: it carries hints, which may be lost or duplicated and never carry work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

log = logging.getLogger("holdfast.notify")


HintKind = Literal["due", "look", "lost", "ended", "awaited", "signal"]

ANY = "*"
"""In place of a type: all of them."""


class Hint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason to poll now.

    due: jobs of `type` may be due. look: poll `type` from the start, a job may lie before the claim cursor.
    lost: `worker` no longer holds the jobs `ids`. ended: the chains `ids` ended.
    awaited: a caller waits for the chains `ids`, so their end is worth a hint.
    signal: signals, of the name `type` if it is given, were sent, and those who wait for them are to be woken.
    Without ids, or with the type `*`, a hint is wider: it means everything of its kind.
    """

    kind: HintKind = msgspec.field(name="k")
    type: str = msgspec.field(name="t", default="")
    worker: str = msgspec.field(name="w", default="")
    ids: tuple[str, ...] = msgspec.field(name="i", default=())


LOOK_EVERYWHERE = Hint("look", ANY)
"""Hints of every kind may have been missed, those about workers and chains included."""

OnHint = Callable[[Hint], None]
"""Called on a thread of the notifier; it must return immediately, as `loop.call_soon_threadsafe` does."""


class SendCounts(msgspec.Struct, frozen=True):
    """Batches that a notifier published, and hints that it dropped."""

    batches: int = 0
    dropped: int = 0


class Listener(Protocol):
    """Receives hints for one callback.

    Whenever hints may have been missed, because a connection was opened or lost, it calls back with
    LOOK_EVERYWHERE.
    """

    @property
    def alive(self) -> bool:
        """Whether hints were proven to arrive not long ago; while they are not, poll more often."""

    @property
    def reconnects(self) -> int:
        """How often a lost connection was re-established."""

    def wait_until_alive(self, timeout: float) -> bool:
        """Wait until hints are proven to arrive; False when that took too long."""

    def close(self) -> None:
        """Stop listening and release everything. Not for use inside the callback."""


class Notifier(Protocol):
    """Sends and receives hints. All methods may be called from any thread."""

    @property
    def counts(self) -> SendCounts:
        """What was published and dropped so far."""

    def send(self, hints: Sequence[Hint]) -> None:
        """Queue hints; never waits, never raises: what cannot be sent is dropped and counted."""

    def listen(self, on_hint: OnHint) -> Listener:
        """Call back for every hint that arrives, from now on and until the listener is closed."""

    def close(self) -> None:
        """Send what is queued, within a bounded time, close all listeners and release everything."""


def safe_callback(on_hint: OnHint) -> OnHint:
    """Return a callback that never raises; the first error of the given one is logged."""
    reported = False

    def call(hint: Hint) -> None:
        nonlocal reported
        try:
            on_hint(hint)
        except Exception:
            if not reported:
                reported = True
                log.exception("a hint callback failed; its further errors are not logged")

    return call


_CYCLE = "cycle:"


def cycle_hint(name: str) -> Hint:
    """Return the hint that a cycle was triggered or resumed; to workers it is an unknown type."""
    return Hint("due", f"{_CYCLE}{name}")


LOG_HINT = Hint("due", "log:")
"""Events were appended to the log; to workers it is an unknown type."""

CONTROL_HINT = Hint("due", "log:control")
"""Lines of the log were given back, or an operator has paused, moved or released something."""


def is_about_log(hint: Hint) -> bool:
    """Return whether a hint concerns those who read the log."""
    return hint.type == ANY or hint.type.startswith(LOG_HINT.type)


def is_about_cycles(hint: Hint) -> bool:
    """Return whether a hint concerns cycles."""
    return hint.kind == "due" and hint.type.startswith(_CYCLE)
