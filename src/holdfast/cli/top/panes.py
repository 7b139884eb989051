"""The tabs of the live view: their columns, and which letters act on their rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from holdfast.cli.top.source import Row, Source


@dataclass(frozen=True, slots=True)
class Pane:
    """One tab; each letter names what it does to the row under the cursor."""

    id: str
    title: str
    columns: tuple[str, ...]
    read: Callable[[Source], Awaitable[list[Row]]]
    actions: Mapping[str, str] = field(default_factory=dict)


PANES = (
    Pane(
        "jobs",
        "Jobs",
        ("id", "type", "state", "attempt", "created", "error"),
        Source.jobs,
        {"r": "job.retry", "c": "job.cancel", "n": "job.run_now"},
    ),
    Pane(
        "types",
        "Types",
        ("type", "live", "oldest due", "completed", "failed", "workers", "paused", "settings"),
        Source.types,
        {"p": "type.pause", "u": "type.resume"},
    ),
    Pane(
        "workers",
        "Workers",
        ("id", "state", "host", "slots", "held", "seen", "processed"),
        Source.workers,
        {"d": "worker.drain"},
    ),
    Pane(
        "dead",
        "Dead letters",
        ("count", "type", "newest", "error"),
        Source.dead,
        {"r": "dead.redrive", "x": "dead.drop"},
    ),
    Pane(
        "cycles",
        "Cycles",
        ("name", "runs", "next", "last", "error"),
        Source.cycles,
        {"n": "cycle.run_now", "p": "cycle.pause", "u": "cycle.resume"},
    ),
)

WORDS = {
    "r": "retry",
    "c": "cancel",
    "n": "run now",
    "p": "pause",
    "u": "resume",
    "d": "drain",
    "x": "drop",
}
"""What each letter means; a capital one does it without asking."""

COLOURS = {
    "blocked": "magenta",
    "pending": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "crashed": "red",
    "cancelled": "bright_black",
    "live": "green",
    "draining": "yellow",
    "silent": "red",
    "paused": "yellow",
}
