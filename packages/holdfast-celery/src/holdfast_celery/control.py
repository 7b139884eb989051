"""`app.control`: what Celery asks its workers over the broker, read from the database."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ChainNotFound
from holdfast_celery.coverage import refuse_attributes
from holdfast_celery.result import AsyncResult
from holdfast_values.tagged_values import untag_value

if TYPE_CHECKING:
    from holdfast_celery.application import Celery

_PAGE = 200


class WorkerInspection:
    """What workers do, as of their last heartbeat; None where Celery says so, without workers."""

    def __init__(self, app: Celery, destination: Iterable[str] | None = None) -> None:
        self._app = app
        self._destination = None if destination is None else set(destination)

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("control attribute")

    def stats(self) -> dict[str, dict[str, Any]] | None:
        """Return of each worker its process, its slots, and for how many seconds it has run."""
        now = datetime.now(tz=UTC)
        return {
            each.id: {
                "pid": each.pid,
                "uptime": int((now - each.started_at).total_seconds()),
                "pool": {"max-concurrency": each.slots},
            }
            for each in self._app.workers.list()
            if self._destination is None or each.id in self._destination
        } or None

    def ping(self, destination: Iterable[str] | None = None) -> dict[str, dict[str, str]] | None:
        """Return an answer for each worker that lives."""
        chosen = self._destination if destination is None else set(destination)
        names = [each.id for each in self._app.workers.list()]
        found = {name: {"ok": "pong"} for name in names if chosen is None or name in chosen}
        return found or None

    def active(self, safe: None = None) -> dict[str, list[dict[str, Any]]] | None:
        """Return the tasks that each worker runs, the newest two hundred of all."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self.ping() or {}}
        for job in self._app.jobs.list("state:running", limit=_PAGE):
            task = job.type.rpartition(":")[2]
            known = self._app.tasks.get(task)
            # What a sealed task was given is for its worker alone.
            if job.worker in found and known is not None and not known.options.sealed:
                found[job.worker].append(
                    {
                        "id": job.input.get("task_id") or str(job.id),
                        "name": task,
                        "args": _untag(job.input.get("args", [])),
                        "kwargs": _untag(job.input.get("kwargs", {})),
                        "hostname": job.worker,
                        "time_start": job.started_at and job.started_at.timestamp(),
                    }
                )
        return found or None


def _untag(arguments: Any) -> Any:
    """Return arguments as they were given; as they are stored where this process does not know an enum."""
    try:
        return untag_value(arguments)
    except LookupError:
        return arguments


class WorkerControl:
    """Revokes tasks, and asks which workers live."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("control attribute")

    def revoke(
        self, task_id: str | Iterable[str], destination: None = None, **arguments: Any
    ) -> None:
        """Cancel tasks by their ids, as `result.revoke()` does; unknown ids are passed over."""
        for each in [task_id] if isinstance(task_id, str) else task_id:
            with suppress(ChainNotFound):
                AsyncResult(each, self._app).revoke()

    terminate = revoke

    def ping(
        self, destination: Iterable[str] | None = None, timeout: float = 1.0
    ) -> list[dict[str, dict[str, str]]]:
        """Return an answer for each worker that lives."""
        found = self.inspect(destination).ping() or {}
        return [{name: answer} for name, answer in found.items()]

    def inspect(
        self, destination: Iterable[str] | None = None, timeout: float = 1.0
    ) -> WorkerInspection:
        """Return what to ask of workers."""
        return WorkerInspection(self._app, destination)
