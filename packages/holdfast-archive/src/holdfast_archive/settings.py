"""Where the archive puts its files, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.core.errors import InvalidSchedule
from holdfast.core.schedule import Cron
from holdfast.settings.fields import FilesUrl, Text, setting


@dataclass(frozen=True, slots=True)
class CronText:
    """A cron expression of five fields."""

    expected: str = 'a cron expression like "47 3 * * *"'

    def parse(self, raw: object) -> str:
        try:
            return Cron(Text().parse(raw), "UTC").expression
        except InvalidSchedule as error:
            raise ValueError from error


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """The archive."""

    PREFIX: ClassVar[str] = "HOLDFAST_"

    archive: str | None = setting(
        FilesUrl(),
        None,
        "Where the archive puts its files: a path, file:///path or s3://bucket/prefix;"
        " unset: nothing is archived.",
    )
    archive_cron: str = setting(
        CronText(), "47 3 * * *", "When the archive runs, in WORKER_TIME_ZONE."
    )


GROUPS = (ArchiveSettings,)
