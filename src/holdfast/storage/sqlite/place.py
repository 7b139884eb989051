"""Which file stands under a name: one that was moved, deleted or replaced is not the one that was opened there."""

from __future__ import annotations

from pathlib import Path

FileId = tuple[int, int]
"""A file, whatever it is called; no other has the same while anybody has it open."""


def file_at(path: Path) -> FileId | None:
    """Return the file of this name; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
