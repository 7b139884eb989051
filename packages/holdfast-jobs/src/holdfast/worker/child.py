"""The process side of `executor="process"`: `python -m holdfast.worker.child MODULE:FUNCTION`, plain mode only."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO

from holdfast.client.start_options import check_priority, check_time
from holdfast.core.codec import TypeCodec, encode_any
from holdfast.core.duration import milliseconds
from holdfast.core.errors import Busy, InputUnreadable, words_of
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.redaction import printable
from holdfast.core.registry import JobType
from holdfast.core.retry import JOB_RETRY
from holdfast.core.signatures import signature_of
from holdfast.observe.context import JobContext, current_job
from holdfast.observe.logging import log_json
from holdfast.worker.attempt import Attempt, EffectivePolicy
from holdfast.worker.job import Job, check_progress
from holdfast.worker.processes import (
    LENGTH_BYTES,
    ChildFailure,
    ChildMessage,
    ChildResult,
    JobRequest,
    ProgressUpdate,
    ReadyForJobs,
    adopt_orphans,
    decode_message,
    descendants,
    encode_message,
)
from holdfast.worker.resolve_outcome import format_places, format_stack

Send = Callable[[ChildMessage], None]

# Timeouts and retries are the parent's; this process does not use them.
_POLICY = EffectivePolicy(0, 0, JOB_RETRY, None)


def main(target: str, json_from_level: str | None = None) -> None:
    """Run the jobs requested on standard input until it closes; signals are handled by the parent.

    With a level, log JSON from it on, as the parent does.
    """
    if json_from_level is not None:
        log_json(json_from_level)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What the handler prints must not be taken for a result, nor may it read the next request.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    parent = ParentWatch(requests.fileno())
    handler = load(target)
    type = job_type(handler)
    adopt_orphans()
    _write(results, ReadyForJobs())
    while True:
        request = _read(requests)
        if request is None:
            return
        with parent.watch():
            results.write(_run(handler, type, request, partial(_write, results)))
            results.flush()


def load(target: str) -> Callable[..., Any]:
    """Import the handler that the parent's own code named."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler: Callable[..., Any] = found
    return handler


def job_type(handler: Callable[..., Any]) -> JobType:
    """The type as far as the process needs it: how to decode inputs and encode outputs."""
    signature = signature_of(handler, Job, (Continue, Snooze, Cancel))
    return JobType(
        name=handler.__qualname__,
        handler=handler,
        input=TypeCodec(signature.input),
        output=TypeCodec(signature.output, "output"),
    )


def _read(stream: BinaryIO) -> JobRequest | None:
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    message = decode_message(stream.read(int.from_bytes(head, "big")))
    assert isinstance(message, JobRequest)
    return message


def _write(stream: BinaryIO, message: ChildMessage) -> None:
    stream.write(encode_message(message))
    stream.flush()


class ParentWatch:
    """Kills the handler, and the programs it started, when the worker that waits for it is gone."""

    def __init__(self, pipe: int) -> None:
        """Watch the pipe on which requests come."""
        self._pipe = pipe
        self._is_gone = False
        self._is_running = False
        threading.Thread(target=self._watch, name="holdfast parent", daemon=True).start()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch while a handler runs."""
        self._is_running = True
        self._die_if_orphaned()
        yield
        self._is_running = False

    def _watch(self) -> None:
        # Without events to look for it still reports that the other end was closed.
        watch = select.poll()
        watch.register(self._pipe, 0)
        watch.poll()
        self._is_gone = True
        self._die_if_orphaned()

    def _die_if_orphaned(self) -> None:
        # Between two jobs the process sees the closed pipe and ends by itself.
        if self._is_gone and self._is_running:
            for pid in descendants(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.killpg(os.getpgrp(), signal.SIGKILL)


class ChildJob(Job[Any]):
    """A job whose progress is sent to the parent at once."""

    __slots__ = ("_send",)

    def __init__(self, attempt: Attempt, worker: str, send: Send) -> None:
        super().__init__(attempt, worker, None)
        self._send = send

    def progress(self, fraction: float, note: str = "") -> None:
        self._send(ProgressUpdate(*check_progress(fraction, note)))


def _run(handler: Callable[..., Any], type: JobType, request: JobRequest, send: Send) -> bytes:
    """Run the handler and encode its result; one that cannot be encoded is a failure too."""
    claimed = request.claimed
    current_job.set(
        JobContext(
            claimed.id,
            claimed.type,
            claimed.chain_id,
            request.worker,
            claimed.attempt,
            claimed.trace,
        )
    )
    try:
        job = ChildJob(Attempt(claimed, type, _POLICY, 0.0), request.worker, send)
        job.set_blockers(request.blockers)
        value = handler(job)
        if inspect.isawaitable(value):
            value = asyncio.run(_await_value(value))
        return encode_message(_make_result(type, value))
    except Snooze as snooze:
        return encode_message(_make_result(type, snooze))
    except BaseException as error:
        return encode_message(_make_failure(error, request.sealed))
    finally:
        current_job.set(None)


def _make_failure(error: BaseException, sealed: bool) -> ChildFailure:
    retry_after_ms = getattr(error, "retry_after_ms", None)
    return ChildFailure(
        kind=error.__class__.__name__,
        message=printable(error.message if isinstance(error, InputUnreadable) else words_of(error)),
        stack=printable(format_places(error) if sealed else format_stack(error)),
        retryable=getattr(error, "retryable", True) is not False,
        retry_after_ms=retry_after_ms if type(retry_after_ms) is int else None,
        busy_ms=error.delay_ms if isinstance(error, Busy) else None,
        busy_until=error.at if isinstance(error, Busy) else None,
        busy_key=isinstance(error, Busy) and error.key,
        unreadable=isinstance(error, InputUnreadable) and error.job_id is not None,
    )


async def _await_value(value: Any) -> Any:
    return await value


def _make_result(type: JobType, value: Any) -> ChildResult:
    match value:
        case Snooze():
            return ChildResult("snooze", delay_ms=value.delay_ms, at=value.at)
        case Cancel():
            return ChildResult("cancel", reason=printable(str(value.reason)))
        case Continue():
            name = value.type if isinstance(value.type, str) else ""
            if not name:
                raise TypeError("a handler in a process must name the next job type as a string")
            return ChildResult(
                "continue",
                encode_any(value.input, sys.maxsize),
                name,
                delay_ms=None if value.after is None else milliseconds(value.after),
                at=check_time(value.at, value.after),
                priority=None if value.priority is None else check_priority(value.priority),
                blockers=[str(getattr(each, "id", each)) for each in value.blockers],
                options=dict(value.options),
            )
        case _:
            return ChildResult(
                "value", "null" if value is None else type.output.encode(value, sys.maxsize)
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
