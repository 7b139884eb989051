"""The hint that wakes the background mode: something about a cycle has changed."""

from __future__ import annotations

from holdfast.notify.port import Hint

_CYCLE = "cycle:"


def cycle_hint(name: str) -> Hint:
    """Return the hint that a cycle was asked for or resumed; workers take it for a type they do not know."""
    return Hint("due", f"{_CYCLE}{name}")


def is_about_cycles(hint: Hint) -> bool:
    """Say whether a hint concerns cycles."""
    return hint.kind == "due" and hint.type.startswith(_CYCLE)
