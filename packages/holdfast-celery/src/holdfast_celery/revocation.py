"""Tasks that are revoked: noted while they run, and told to receivers of `task_revoked` once that is committed."""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.core.errors import HoldfastError
from holdfast.core.events import Event
from holdfast_celery.calls import untag_known
from holdfast_celery.scope import TaskRequest
from holdfast_celery.signals import task_revoked

if TYPE_CHECKING:
    from holdfast_celery.application import Celery

_log = logging.getLogger("holdfast.celery")

REVOKED = "holdfast.celery.revoked"
"""The scope of the keys that say which jobs were revoked while they ran."""

_BY_ITSELF = "Cancelled: "
"""What the reason begins with where an attempt ended as cancelled, in the words of its error."""


class _NeverRevoked(Exception):
    """Takes a key back that was free: that it was is the answer."""


def is_revoked(app: Celery, job_id: UUID) -> bool:
    """Whether a job was revoked while it ran, so that no other attempt may follow."""
    with suppress(_NeverRevoked), app.transaction() as tx:
        if app.use_key(tx, REVOKED, str(job_id)):
            raise _NeverRevoked
        return True
    return False


class RevokedTasks:
    """An observer that sends `task_revoked` in the process that cancels a task, or finds that it has expired."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._thread: ThreadPoolExecutor | None = None

    def wants(self, name: str) -> bool:
        """Whether somebody listens."""
        return name == "job_cancelled" and task_revoked.has_listeners()

    def observe(self, event: Event) -> None:
        """Send the signal in this thread; for an event loop, which must not wait, in another one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._send(event)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "holdfast-task-revoked")
        self._thread.submit(self._send, event)

    def _send(self, event: Event) -> None:
        fields = event.fields
        task = self._app.tasks.get(fields["type"].rpartition(":")[2])
        if task is None:
            return
        reason = str(fields["reason"] or "")
        is_own = reason.startswith(_BY_ITSELF)
        is_terminated = fields["worker"] is not None and not is_own
        task_revoked.send(
            task,
            request=self._request_of(task.name, fields),
            terminated=is_terminated,
            signum=signal.SIGTERM if is_terminated else None,
            expired=reason.removeprefix(_BY_ITSELF).lower().startswith("expired"),
        )

    def _request_of(self, task: str, fields: Any) -> TaskRequest:
        call: dict[str, Any] = {}
        try:
            call = self._app.jobs.get(fields["job_id"]).input
        except HoldfastError as error:
            # One that is sealed for this process, or was deleted as it ended, is known by its id.
            _log.debug("the arguments of %s are not known: %s", fields["job_id"], error)
        named = {name: untag_known(each) for name, each in call.get("kwargs", {}).items()}
        headers = {name: untag_known(each) for name, each in (call.get("headers") or {}).items()}
        return TaskRequest(
            id=call.get("task_id") or fields["job_id"],
            task=task,
            args=tuple(map(untag_known, call.get("args", ()))),
            kwargs=named,
            root_id=fields["chain_id"],
            hostname=fields["worker"],
            called_directly=False,
            headers=headers or None,
            app=self._app,
        )
