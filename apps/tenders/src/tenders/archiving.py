"""The cycles `cleanup` and `archiveExport`: old rows move to the archive's tables, and from there to Parquet files."""

from __future__ import annotations

from holdfast import from_env
from holdfast_archive import add_archive, move_rows
from tenders.jobs import jobs
from tenders.settings import TIME_ZONE, read_settings

_SETTINGS = read_settings()


def archive_table(url: str, table: str) -> str:
    """Return where old rows of a table are: in the schema `archive`, or on SQLite, which has none, by a prefix."""
    return f"archive_{table}" if url.startswith("sqlite") else f"archive.{table}"


_OLD_TENDERS = archive_table(_SETTINGS.database_url, "tenders")
_OLD_DELIVERIES = archive_table(_SETTINGS.database_url, "notification_deliveries")

move_rows(
    jobs,
    "cleanup",
    source="tenders",
    target=_OLD_TENDERS,
    at="published_at",
    older_than=f"{_SETTINGS.hot_months} months",
    cron=from_env("CLEANUP_CRON", "17 3 * * *"),
    tz=TIME_ZONE,
)
# In the same cycle, after the tenders.
move_rows(
    jobs,
    "cleanup",
    source="notification_deliveries",
    target=_OLD_DELIVERIES,
    at="completed_at",
    older_than=f"{_SETTINGS.retention_days}d",
)

archive = add_archive(
    jobs, _SETTINGS.archive_url, cron=from_env("ARCHIVE_EXPORT_CRON", "47 3 * * *"), tz=TIME_ZONE
)
archive.table(
    _OLD_TENDERS,
    key=("id", "published_at"),
    at="published_at",
    keep=_SETTINGS.archive_keep,
    name="tenders",
)
archive.table(
    _OLD_DELIVERIES,
    key="id",
    at="completed_at",
    keep=_SETTINGS.archive_keep,
    name="notification_deliveries",
)
