"""The archive: closed periods of tables, and of Holdfast's own jobs, as Parquet files; needs the extra `archive`."""

from holdfast.archive.engine import Archive
from holdfast.archive.progress import ArchiveReport, Progress, Restored

__all__ = ["Archive", "ArchiveReport", "Progress", "Restored"]
