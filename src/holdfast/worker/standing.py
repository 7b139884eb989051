"""What the store says of a job we hold a token for, as the reason that its handler is given."""

from __future__ import annotations

from typing import assert_never

from holdfast.core.model import Stand
from holdfast.worker.attempt import AbortReason


def lost_because(stand: Stand) -> AbortReason | None:
    """Why a job is no longer held; None when it is, or when we ended it ourselves."""
    match stand.standing:
        case "held" | "done":
            return None
        case "ended":
            return "cancelled" if stand.state == "cancelled" else "already_completed"
        case "taken" | "free":
            return "taken_by_another_worker"
        case "gone":
            return "not_found"
        case _:
            assert_never(stand.standing)
