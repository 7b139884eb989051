"""The errors of the archive, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class ArchiveError(HoldfastError):
    """The archive could not export, check or restore rows."""


class ManifestNotFound(ArchiveError, code="HF110", http_status=404, exit_code=3):
    """There is no such manifest.

    A manifest is identified by its id, or by source, period and part, as in deliveries/2026-10/0.
    """

    fix = "list them with `holdfast archive list`"


class ArchiveCorrupted(ArchiveError, code="HF111", http_status=409, exit_code=6):
    """An archived object is not what was stored.

    It is missing, damaged, cut short, or was replaced by another one. No row is dropped or restored
    because of it.
    """

    fix = "if its rows were not dropped, the next run exports them again; otherwise restore the object"


class ArchiveSourceInvalid(ArchiveError, code="HF112", http_status=409, exit_code=2):
    """A table cannot be archived or moved as declared.

    The table and its columns must exist, the key must be unique and never null, and a row must have
    the same columns where it comes from and where it goes.
    """

    fix = "correct the declaration, or the table"


class RestoreConflict(ArchiveError, code="HF113", http_status=409, exit_code=4):
    """A row with this key already exists and has other values.

    A restore never overwrites rows, and never ends a job that is in the queue again. Identical existing
    rows are skipped; nothing was restored.
    """

    fix = "remove or rename the row that is in the way, or restore into another table"


class ArchiveNotConfigured(ArchiveError, code="HF114", http_status=409, exit_code=2):
    """The archive has no file store.

    Objects are read from the directory or bucket that HOLDFAST_ARCHIVE names.
    """

    fix = "set HOLDFAST_ARCHIVE to a path, file:///path, or s3://bucket/prefix"


class ArchiveBusy(ArchiveError, code="HF115", retryable=True, http_status=409, exit_code=4):
    """Another process is working on this manifest.

    Exports, drops, checks and restores hold a manifest under a lease, which a crashed process loses
    after a minute.
    """

    fix = "wait for the other process, then try again"


class ArchiveIncomplete(ArchiveError, code="HF116", retryable=True):
    """Not everything could be archived.

    Each period is archived on its own: those that failed are left as they are and tried again by the
    next run, the others are done.
    """

    fix = "see the reasons with `holdfast archive list --state failed`"
