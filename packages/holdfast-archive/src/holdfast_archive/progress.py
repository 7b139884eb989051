"""What the archive reports: how far a step is, what a run did, what a restore brought back; and the run it works in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import msgspec

from holdfast.core.instants import Instant
from holdfast_archive.manifest import Manifest

Now = Callable[[], Instant | None]

Step = Literal["export", "upload", "verify", "drop", "restore"]


class Progress(msgspec.Struct, frozen=True):
    """How far the work on a manifest is: so many rows, or chains of a drop, of a total if that is known."""

    step: Step
    manifest: str
    rows: int
    total: int | None = None


OnProgress = Callable[[Progress], object]


class ArchiveReport(msgspec.Struct):
    """What a run did; `note` says why it did nothing, `manifests` names those it worked on."""

    configured: bool = True
    periods: int = 0
    items: int = 0
    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    failed: int = 0
    note: str | None = None
    manifests: list[str] = []
    errors: list[str] = []


class Restored(msgspec.Struct, frozen=True):
    """What a restore did: rows inserted, and rows that were there already, equal to the archived ones."""

    manifest: Manifest
    inserted: int
    skipped: int


def ignore_progress(progress: Progress) -> None:
    """Take no interest in progress."""


def never() -> bool:
    """Go on to the end."""
    return False


class ArchiveRun(Protocol):
    """What archiving and moving rows need of a cycle's run."""

    max_items: int | None

    @property
    def aborted(self) -> bool:
        """Whether it must stop."""

    def checkpoint(self) -> None:
        """Raise when it must stop."""

    def count(self, name: str, number: int | float = 1) -> None:
        """Add to a counter of the run."""

    def room(self, wanted: int) -> int:
        """Return how many of the wanted items are still allowed."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction that commits only while the run holds its slot."""
