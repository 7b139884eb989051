"""The archive: closed periods of tables, and of Holdfast's own jobs, as Parquet files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_archive.engine import Archive as Archive
    from holdfast_archive.progress import ArchiveReport as ArchiveReport
    from holdfast_archive.progress import Progress as Progress
    from holdfast_archive.progress import Restored as Restored
    from holdfast_archive.registration import add_archive as add_archive
    from holdfast_archive.registration import move_rows as move_rows

_HOMES = {
    "Archive": "engine",
    "ArchiveReport": "progress",
    "Progress": "progress",
    "Restored": "progress",
    "add_archive": "registration",
    "move_rows": "registration",
}

__all__ = ["Archive", "ArchiveReport", "Progress", "Restored", "add_archive", "move_rows"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: what the extension adds to Holdfast needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
