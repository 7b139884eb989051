"""A task as Celery's messages have it: for receivers of `before_task_publish` and `task_received`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.ids import beside
from holdfast.core.instants import Instant, to_datetime
from holdfast_celery.calls import (
    CallOptions,
    GroupStep,
    Step,
    Steps,
    TaskStep,
    check_headers,
    tag_arguments,
    untag_arguments,
    untag_known,
)
from holdfast_celery.coverage import refuse_attributes
from holdfast_celery.signals import before_task_publish

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.scope import TaskRequest
    from holdfast_celery.tasks import CeleryTask


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A task that a worker has claimed and not begun yet."""

    task: CeleryTask
    id: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    root_id: str | None
    hostname: str | None
    request_dict: dict[str, Any]
    """The headers of the message, those of the call among them."""

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("request attribute")

    @property
    def task_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    @property
    def task_name(self) -> str:
        """The same as `name`."""
        return self.name

    @property
    def app(self) -> Celery:
        """The task's application."""
        return self.task.app

    @property
    def _request_dict(self) -> dict[str, Any]:
        """The same as `request_dict`; applications have come to use Celery's own attribute."""
        return self.request_dict


def received_request(
    task: CeleryTask, request: TaskRequest, expires: Instant | None
) -> ReceivedRequest:
    """Return what receivers of `task_received` are given of an attempt that is about to be made."""
    headers = _headers(
        task.name,
        str(request.id),
        request.root_id,
        request.args,
        request.kwargs,
        retries=request.retries,
        expires=_time_of(expires),
    )
    return ReceivedRequest(
        task,
        str(request.id),
        request.args,
        request.kwargs,
        request.root_id,
        request.hostname,
        headers | (request.headers or {}),
    )


def send_before_publish(
    app: Celery, steps: Steps, given: Sequence[Any] = (), chain_id: str | None = None
) -> Steps:
    """Send the signal for each task of a canvas that starts first; return the canvas with what receivers have added.

    It comes before the transaction that writes the tasks: a receiver may write to the same SQLite file. given: the
    result, tagged, that the canvas begins with. chain_id: the chain that it goes on with. Raises: PayloadNotEncodable.
    """
    if not before_task_publish.has_listeners():
        return steps
    first, *rest = steps
    if isinstance(first, TaskStep):
        return (_send(app, first, given, chain_id), *rest)
    found: list[Step] = [
        GroupStep(tuple(send_before_publish(app, each, given) for each in first.members))
    ]
    if rest and isinstance(rest[0], TaskStep):
        # It waits for the group, and is written together with that.
        found.append(_send(app, rest[0], (), chain_id))
    return (*found, *rest[len(found) - 1 :])


def _send(app: Celery, step: TaskStep, given: Sequence[Any], chain_id: str | None) -> TaskStep:
    options = step.options
    made = None
    if options.task_id is None:
        new = str(app.new_id())
        made = new if chain_id is None else beside(new, chain_id)
    id = str(options.task_id or made)
    args = tuple(map(untag_known, step.args if step.immutable else (*given, *step.args)))
    try:
        kwargs, is_known = untag_arguments(step.kwargs), True
    except LookupError:
        # An enum that only the task's own worker knows: receivers see it as it is stored, and cannot change it.
        kwargs, is_known = dict(step.kwargs), False
    own = _headers(
        step.task,
        id,
        chain_id or id,
        args,
        kwargs,
        eta=_time_of(options.at, options.after_ms),
        expires=_time_of(options.expires_at, options.expires_ms),
        ignore_result=options.ignore_result,
    )
    said = {name: untag_known(each) for name, each in (options.headers or {}).items()}
    headers = own | said
    before_task_publish.send(
        step.task,
        body=(args, kwargs, dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))),
        exchange="",
        routing_key=options.queue or app.conf.task_default_queue,
        declare=[],
        headers=headers,
        properties={"correlation_id": id, "reply_to": ""},
        retry_policy=None,
    )
    kept = {name: each for name, each in headers.items() if name in said or name not in own}
    changed = CallOptions(id=made, headers=check_headers(kept) if kept else None)
    named = tag_arguments((), kwargs, step.task)[1] if is_known else step.kwargs
    return msgspec.structs.replace(step, kwargs=named, options=options.merge(changed))


def _headers(
    task: str,
    id: str,
    root_id: str | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    eta: str | None = None,
    expires: str | None = None,
    retries: int = 0,
    ignore_result: bool | None = None,
) -> dict[str, Any]:
    """Return the headers that Celery gives a message, by its names; what has no meaning here is None."""
    return {
        "lang": "py",
        "task": task,
        "id": id,
        "shadow": None,
        "eta": eta,
        "expires": expires,
        "group": None,
        "group_index": None,
        "retries": retries,
        "timelimit": [None, None],
        "root_id": root_id,
        "parent_id": None,
        "argsrepr": repr(args),
        "kwargsrepr": repr(kwargs),
        "origin": f"gen{os.getpid()}@{socket.gethostname()}",
        "ignore_result": bool(ignore_result),
    }


def _time_of(at: Instant | None, after_ms: int | None = None) -> str | None:
    if after_ms:
        return (datetime.now(UTC) + timedelta(milliseconds=after_ms)).isoformat()
    return None if at is None else to_datetime(at).isoformat()
