"""Jobs as Django's admin shows them, and the permissions of the dashboard. Nothing here is migrated or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, models

from holdfast.settings import load_some
from holdfast.storage.sql_loader import check_identifier
from holdfast_django.application import database_alias
from holdfast_django.permissions import PERMISSIONS

if TYPE_CHECKING:
    AnyManager = models.Manager["JobRow"]
else:
    AnyManager = models.Manager


def _is_sqlite() -> bool:
    # Engines have many names, of GIS and of wrappers that measure; the vendor is that of the database.
    alias = database_alias()
    return alias not in connections.settings or connections[alias].vendor != "postgresql"


def _view() -> str:
    """Return the view `jobs`, which is documented for people who query it."""
    if _is_sqlite():
        return "holdfast_jobs"
    schema = check_identifier(str(load_some(("HOLDFAST_SCHEMA",), {})["HOLDFAST_SCHEMA"]))
    return f'"{schema}"."jobs"'


class HiddenManager(AnyManager):
    """Finds nothing: `dumpdata` takes what the first manager finds, and rows of a view cannot be loaded again."""

    def get_queryset(self) -> Any:
        """Return no jobs."""
        return super().get_queryset().none()


class JobRow(models.Model):
    """A row of the view `jobs`."""

    id: Any = (
        models.CharField(primary_key=True, max_length=36)
        if _is_sqlite()
        else models.UUIDField(primary_key=True)
    )
    chain_id: Any = models.CharField(max_length=36) if _is_sqlite() else models.UUIDField()
    type: Any = models.CharField(max_length=401)
    state: Any = models.CharField(
        max_length=9,
        choices=[
            (each, each)
            for each in ("pending", "blocked", "running", "completed", "failed", "cancelled")
        ],
    )
    priority: Any = models.IntegerField()
    key: Any = models.CharField(max_length=1024, null=True)
    input: Any = models.TextField()
    output: Any = models.TextField(null=True)
    attempt: Any = models.IntegerField()
    locked_by: Any = models.CharField("worker", max_length=200, null=True)
    error: Any = models.TextField(null=True)
    created_at: Any = models.DateTimeField()
    planned_at: Any = models.DateTimeField(null=True)
    available_at: Any = models.DateTimeField(null=True)
    started_at: Any = models.DateTimeField(null=True)
    finished_at: Any = models.DateTimeField(null=True)

    objects = HiddenManager()
    rows: models.Manager[JobRow] = models.Manager()

    class Meta:
        """No table of Django's, and the permissions of the dashboard."""

        managed = False
        db_table = _view()
        default_permissions = ()
        permissions = tuple(PERMISSIONS.values())
        verbose_name = "job"
        ordering = ("-id",)

    def __str__(self) -> str:
        """Show what identifies it."""
        return f"{self.type} {self.id}"
