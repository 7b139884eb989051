"""`app.control`: what Celery asks its workers over the broker, read from the database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.client.workers import WorkerInfo
from holdfast_celery.calls import untag_known
from holdfast_celery.coverage import check_names, refuse, refuse_attributes
from holdfast_celery.result import AsyncResult

if TYPE_CHECKING:
    from holdfast_celery.application import Celery

_PAGE = 200


class WorkerInspection:
    """What workers do, as of their last heartbeat; None where Celery says so, without workers."""

    def __init__(self, app: Celery, destination: str | Iterable[str] | None = None) -> None:
        self._app = app
        self._destination = _names(destination)

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
            for each in self._workers()
        } or None

    def ping(
        self, destination: str | Iterable[str] | None = None
    ) -> dict[str, dict[str, str]] | None:
        """Return an answer for each worker that lives."""
        return {each.id: {"ok": "pong"} for each in self._workers(destination)} or None

    def registered(self, *attributes: str) -> dict[str, list[str]] | None:
        """Return the names of the tasks that each worker runs. Raises: CeleryUnsupported for their attributes."""
        if attributes:
            raise refuse("control attribute", "conf")
        found = {}
        for each in self._workers():
            names = {type.rpartition(":")[2] for type in each.types}
            found[each.id] = sorted(names & self._app.tasks.keys())
        return found or None

    def active(self, safe: None = None) -> dict[str, list[dict[str, Any]]] | None:
        """Return the tasks that each worker runs, the newest two hundred of all."""
        found: dict[str, list[dict[str, Any]]] = {each.id: [] for each in self._workers()}
        for job in self._app.jobs.list("state:running", limit=_PAGE):
            task = job.type.rpartition(":")[2]
            known = self._app.tasks.get(task)
            # What a sealed task was given is for its worker alone.
            if job.worker in found and known is not None and not known.options.sealed:
                found[job.worker].append(
                    {
                        "id": job.input.get("task_id") or str(job.id),
                        "name": task,
                        "args": untag_known(job.input.get("args", [])),
                        "kwargs": untag_known(job.input.get("kwargs", {})),
                        "hostname": job.worker,
                        "time_start": job.started_at and job.started_at.timestamp(),
                    }
                )
        return found or None

    def _workers(self, destination: str | Iterable[str] | None = None) -> list[WorkerInfo]:
        chosen = self._destination if destination is None else _names(destination)
        return [each for each in self._app.workers.list() if chosen is None or each.id in chosen]


def _names(destination: str | Iterable[str] | None) -> set[str] | None:
    """Return the workers that are asked: one, several, or all of them."""
    if destination is None:
        return None
    return {destination} if isinstance(destination, str) else set(destination)


class WorkerControl:
    """Revokes tasks, and asks which workers live."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("control attribute")

    def revoke(
        self,
        task_id: str | UUID | Iterable[str | UUID],
        destination: None = None,
        terminate: bool = False,
        signal: str | None = None,
        **arguments: Any,
    ) -> None:
        """Cancel tasks by their ids, as `result.revoke()` does; unknown ids are passed over.

        destination, signal and timeout are accepted and mean nothing here. Raises: CeleryUnsupported for others.
        """
        check_names("control argument", arguments, "app.control.revoke")
        for each in [task_id] if isinstance(task_id, str | UUID) else task_id:
            AsyncResult(each, self._app).revoke(terminate=terminate)

    def terminate(
        self,
        task_id: str | UUID | Iterable[str | UUID],
        destination: None = None,
        signal: str | None = None,
        **arguments: Any,
    ) -> None:
        """Cancel tasks by their ids, those that run included. Raises: as `revoke`."""
        self.revoke(task_id, terminate=True, **arguments)

    def ping(
        self, destination: str | Iterable[str] | None = None, timeout: float = 1.0
    ) -> list[dict[str, dict[str, str]]]:
        """Return an answer for each worker that lives."""
        found = self.inspect(destination).ping() or {}
        return [{name: answer} for name, answer in found.items()]

    def inspect(
        self, destination: str | Iterable[str] | None = None, timeout: float = 1.0
    ) -> WorkerInspection:
        """Return what to ask of workers."""
        return WorkerInspection(self._app, destination)
