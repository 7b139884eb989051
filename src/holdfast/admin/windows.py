"""Spans of time that figures are shown over, and quantiles of what was measured in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Window = Literal["1h", "6h", "24h"]

STEPS_MS: dict[Window, tuple[int, int]] = {
    "1h": (3_600_000, 60_000),
    "6h": (21_600_000, 360_000),
    "24h": (86_400_000, 1_440_000),
}
"""The span of each window and the step that its charts are drawn in: sixty of them."""


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """Return the value below which a share of the ordered ones lies, never below zero; None of nothing."""
    if not ordered:
        return None
    return max(0, ordered[min(len(ordered) - 1, int(len(ordered) * share))])
