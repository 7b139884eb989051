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

from holdfast.client.options import check_priority, check_time
from holdfast.core.codec import TypeCodec, encode_any
from holdfast.core.duration import milliseconds
from holdfast.core.error_text import printable, words_of
from holdfast.core.errors import Busy
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import ClaimedJob
from holdfast.core.registry import JobType
from holdfast.core.retry import JOB_RETRY
from holdfast.core.signatures import signature_of
from holdfast.observe.context import JobContext, current_job
from holdfast.worker.attempt import Attempt, Terms
from holdfast.worker.ipc import (
    LENGTH_BYTES,
    Answer,
    Ask,
    Failure,
    Message,
    Progress,
    Ready,
    framed,
    parsed,
)
from holdfast.worker.job import Job, said_progress
from holdfast.worker.processes import adopt_orphans, descendants
from holdfast.worker.resolve_outcome import stack_of

Say = Callable[[Message], None]

# The parent keeps the time; nothing in this process asks for it.
_TERMS = Terms(0, 0, JOB_RETRY, None)


def main(target: str) -> None:
    """Answer jobs from standard input until it closes; the parent's signals are the parent's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asks = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever the handler prints must not be taken for an answer, nor may it read the next question.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    parent = Parent(asks.fileno())
    handler = load(target)
    type = job_type(handler)
    adopt_orphans()
    _write(answers, Ready())
    while True:
        ask = _read(asks)
        if ask is None:
            return
        with parent.awaiting():
            answers.write(_run(handler, type, ask, partial(_write, answers)))
            answers.flush()


def load(target: str) -> Callable[..., Any]:
    """Import the handler that the parent's own code named."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler: Callable[..., Any] = found
    return handler


def job_type(handler: Callable[..., Any]) -> JobType:
    """The type as far as the process needs it: how to read inputs and write outputs."""
    signature = signature_of(handler, Job, (Continue, Snooze, Cancel))
    return JobType(
        name=handler.__qualname__,
        handler=handler,
        input=TypeCodec(signature.input),
        output=TypeCodec(signature.output, "output"),
    )


def _read(stream: BinaryIO) -> Ask | None:
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    message = parsed(stream.read(int.from_bytes(head, "big")))
    assert isinstance(message, Ask)
    return message


def _write(stream: BinaryIO, message: Message) -> None:
    stream.write(framed(message))
    stream.flush()


class Parent:
    """Sees to it that no handler, nor a program it started, outlives the worker that would have heard of its end."""

    def __init__(self, line: int) -> None:
        """Watch the line on which the worker asks."""
        self._line = line
        self._is_gone = False
        self._is_awaiting = False
        threading.Thread(target=self._watch, name="holdfast parent", daemon=True).start()

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """Run a handler for it."""
        self._is_awaiting = True
        self._leave_if_orphaned()
        yield
        self._is_awaiting = False

    def _watch(self) -> None:
        # Without events to look for it still tells of the other end's closing.
        watch = select.poll()
        watch.register(self._line, 0)
        watch.poll()
        self._is_gone = True
        self._leave_if_orphaned()

    def _leave_if_orphaned(self) -> None:
        # Between two jobs the closed line says the same, and the process ends in its own way.
        if self._is_gone and self._is_awaiting:
            for pid in descendants(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.killpg(os.getpgrp(), signal.SIGKILL)


class ChildJob(Job[Any]):
    """A job whose progress is told to the parent at once."""

    __slots__ = ("_say",)

    def __init__(self, attempt: Attempt, worker: str, say: Say) -> None:
        super().__init__(attempt, worker, None)
        self._say = say

    def progress(self, fraction: float, note: str = "") -> None:
        self._say(Progress(*said_progress(fraction, note)))


def _run(handler: Callable[..., Any], type: JobType, ask: Ask, say: Say) -> bytes:
    """Run the handler and frame what came of it: an answer that cannot be said is a failure too."""
    current_job.set(JobContext(ask.id, ask.type, ask.chain_id, ask.worker, ask.attempt, ask.trace))
    try:
        job = ChildJob(Attempt(_claimed(ask), type, _TERMS, 0.0), ask.worker, say)
        job.see_blockers(ask.blockers)
        value = handler(job)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        return framed(_answer(type, value))
    except Snooze as wish:
        return framed(_answer(type, wish))
    except BaseException as error:
        return framed(_failure(error))
    finally:
        current_job.set(None)


def _failure(error: BaseException) -> Failure:
    return Failure(
        kind=error.__class__.__name__,
        message=printable(words_of(error)),
        stack=printable(stack_of(error)),
        retryable=getattr(error, "retryable", True) is not False,
        busy_ms=error.delay_ms if isinstance(error, Busy) else None,
        busy_until=error.at if isinstance(error, Busy) else None,
    )


async def _awaited(value: Any) -> Any:
    return await value


def _answer(type: JobType, value: Any) -> Answer:
    match value:
        case Snooze():
            return Answer("snooze", delay_ms=value.delay_ms, at=value.at)
        case Cancel():
            return Answer("cancel", reason=printable(str(value.reason)))
        case Continue():
            name = value.type if isinstance(value.type, str) else ""
            if not name:
                raise TypeError("a handler in a process names its successor by its type's name")
            return Answer(
                "continue",
                encode_any(value.input),
                name,
                delay_ms=None if value.after is None else milliseconds(value.after),
                at=check_time(value.at, value.after),
                priority=None if value.priority is None else check_priority(value.priority),
                blockers=[str(getattr(each, "id", each)) for each in value.blockers],
                options=dict(value.options),
            )
        case _:
            return Answer("value", "null" if value is None else type.output.encode(value))


def _claimed(ask: Ask) -> ClaimedJob:
    return ClaimedJob(
        id=ask.id,
        token="",
        type=ask.type,
        priority=ask.priority,
        available_at=ask.created_at,
        attempt=ask.attempt,
        max_attempts=None,
        crashes=0,
        fence=ask.fence,
        chain_id=ask.chain_id,
        chain_index=ask.chain_index,
        input=ask.input,
        blockers=0,
        trace=ask.trace,
        key=ask.key,
        created_at=ask.created_at,
        claimed_at=ask.created_at,
    )


if __name__ == "__main__":
    main(sys.argv[1])
