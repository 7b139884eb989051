"""The name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" for the nearest known name, or nothing when none is near."""
    # Only a mistake needs it, and every command would pay for its import.
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else ""
