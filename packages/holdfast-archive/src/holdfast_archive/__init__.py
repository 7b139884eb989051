"""The archive: closed periods of tables, and of Holdfast's own jobs, as Parquet files."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_archive.engine import Archive as Archive
    from holdfast_archive.progress import ArchiveReport as ArchiveReport
    from holdfast_archive.progress import Progress as Progress
    from holdfast_archive.progress import Restored as Restored
    from holdfast_archive.registration import add_archive as add_archive
    from holdfast_archive.registration import move_rows as move_rows

__getattr__ = lazy_names(
    __name__,
    {
        "engine": ("Archive",),
        "progress": ("ArchiveReport", "Progress", "Restored"),
        "registration": ("add_archive", "move_rows"),
    },
)
