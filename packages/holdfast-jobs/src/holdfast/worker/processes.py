"""Handlers in processes of their own (`executor="process"`): CPU-bound work that can be killed at its timeout.

Parent and child (`child.py`) exchange length-prefixed JSON messages.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.core.codec import decode_any
from holdfast.core.errors import Busy, HandlerInvalid, InputUnreadable
from holdfast.core.instants import to_datetime
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import BlockerRecord, ClaimedJob
from holdfast.core.registry import JobType
from holdfast.observe.logging import json_level
from holdfast.worker.job import Call, Job

LENGTH_BYTES = 4
MESSAGE_MAX_BYTES = 64 * 1024 * 1024
_PR_SET_CHILD_SUBREAPER = 36


class ChildDied(Exception):
    """The handler's process ended without a result."""


class HandlerProcess:
    """One process that runs one handler, a job at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_ready = False

    @classmethod
    async def start(cls, target: str) -> HandlerProcess:
        """Start a process for the handler named `module:function`."""
        level = json_level()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.worker.child",
            target,
            *([] if level is None else [level]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            start_new_session=True,
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.returncode is None

    async def run(
        self,
        request: JobRequest,
        on_begun: Callable[[], None],
        on_progress: Callable[[float, str], None],
    ) -> ChildResult | ChildFailure:
        """Run one job. Raises: ChildDied."""
        try:
            if not self._is_ready:
                await self._receive()
                self._is_ready = True
            on_begun()
            await self._send(request)
            message = await self._receive()
            while isinstance(message, ProgressUpdate):
                on_progress(message.fraction, message.note)
                message = await self._receive()
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await self._process.wait()
            raise ChildDied(f"the handler's process ended with code {code}") from error
        except (msgspec.DecodeError, ValueError) as error:
            raise ChildDied(f"the handler's process sent an invalid message: {error}") from error
        assert not isinstance(message, JobRequest | ReadyForJobs)
        return message

    async def _send(self, message: ChildMessage) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(encode_message(message))
        await self._process.stdin.drain()

    async def _receive(self) -> ChildMessage:
        stdout = self._process.stdout
        assert stdout is not None
        length = decode_length(await stdout.readexactly(LENGTH_BYTES))
        return decode_message(await stdout.readexactly(length))

    async def end(self) -> None:
        """End an idle process, by force if need be."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kill the process, together with the programs that its handler has started."""
        for pid in await asyncio.to_thread(descendants, self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class ProcessHandlers:
    """Idle processes by handler, reused from job to job."""

    def __init__(self, on_begun: Callable[[Job[Any]], None]) -> None:
        """`on_begun` is called when a process has imported the handler and begins a job."""
        self._on_begun = on_begun
        self._idle: dict[str, list[HandlerProcess]] = {}

    def call(self, type: JobType) -> Call:
        """The call that runs a type's handler in a process."""
        target = target_of(type)

        async def run(job: Job[Any]) -> Any:
            text = job.current_input()
            idle = self._idle.setdefault(target, [])
            child = _take_alive(idle) or await HandlerProcess.start(target)
            try:
                claimed = msgspec.structs.replace(job.claimed, token="", input=text, version=None)
                sealed = job.attempt_state.sealed
                request = JobRequest(claimed, job.worker, job.blocker_records, sealed)
                message = await child.run(request, partial(self._on_begun, job), job.progress)
            except BaseException:
                await child.kill()
                raise
            idle.append(child)
            if isinstance(message, ChildFailure) and message.unreadable:
                text = "the sealed input cannot be read" if sealed else message.message
                raise InputUnreadable(text, job_id=job.claimed.id)
            return _read_result(message)

        return run

    async def close(self) -> None:
        """End every idle process."""
        children = [each for idle in self._idle.values() for each in idle]
        self._idle.clear()
        await asyncio.gather(*(each.end() for each in children))


def _take_alive(idle: list[HandlerProcess]) -> HandlerProcess | None:
    """Take a process that still runs; those that ended while idle are dropped."""
    while idle:
        child = idle.pop()
        if child.is_alive:
            return child
    return None


def target_of(type: JobType) -> str:
    """The importable name of a type's handler. Raises: HandlerInvalid."""
    module = getattr(type.handler, "__module__", "__main__")
    # A partial or a callable object has no importable name of its own.
    name = getattr(type.handler, "__qualname__", "<nameless>")
    if module == "__main__" or "<" in name:
        raise HandlerInvalid(
            f"the handler of {type.name} cannot be imported in another process",
            help="move it to the top level of an importable module",
        )
    return f"{module}:{name}"


def _make_busy(failure: ChildFailure, delay_ms: int) -> Busy:
    until = to_datetime(failure.busy_until)
    key = failure.busy_key
    error = Busy(delay_ms / 1000, key=key) if until is None else Busy(at=until, key=key)
    # The child's message already says until when.
    error.message = failure.message
    return error


def _read_result(message: ChildResult | ChildFailure) -> Any:
    if isinstance(message, ChildFailure):
        if message.busy_ms is not None:
            raise _make_busy(message, message.busy_ms)
        raise ChildError(message)
    match message.kind:
        case "value":
            return decode_any(message.output)
        case "snooze":
            if message.at is not None:
                return Snooze(at=to_datetime(message.at))
            return Snooze((message.delay_ms or 0) / 1000)
        case "cancel":
            return Cancel(message.reason)
        case "continue":
            after = None if message.delay_ms is None else message.delay_ms / 1000
            return Continue(
                message.type,
                decode_any(message.output),
                after=after,
                at=to_datetime(message.at),
                priority=message.priority,
                blockers=message.blockers,
                options=message.options,
            )


class JobRequest(msgspec.Struct, tag="job", tag_field="message_kind"):
    """Run the handler for this job; the token stays with the parent."""

    claimed: ClaimedJob
    worker: str
    blockers: Sequence[BlockerRecord]
    sealed: bool = False


class ReadyForJobs(msgspec.Struct, tag="ready", tag_field="message_kind"):
    """The process has imported its handler and waits for requests."""


class ProgressUpdate(msgspec.Struct, tag="progress", tag_field="message_kind"):
    """How far the handler is; any number of these come before its result."""

    fraction: float
    note: str


class ChildResult(msgspec.Struct, tag="answer", tag_field="message_kind"):
    """What the handler returned: a value as JSON text, or one of the outcomes."""

    kind: Literal["value", "continue", "snooze", "cancel"]
    output: str = "null"
    type: str = ""
    delay_ms: int | None = None
    reason: str = ""
    at: int | None = None
    priority: int | None = None
    blockers: list[str] = []
    options: dict[str, Any] = {}


class ChildFailure(msgspec.Struct, tag="failure", tag_field="message_kind"):
    """What the handler raised."""

    kind: str
    message: str
    stack: str
    retryable: bool
    retry_after_ms: int | None = None
    busy_ms: int | None = None
    busy_until: int | None = None
    busy_key: bool = False
    unreadable: bool = False


ChildMessage = JobRequest | ReadyForJobs | ProgressUpdate | ChildResult | ChildFailure

_encoder = msgspec.json.Encoder()
# Not strict: SQLite's booleans are numbers.
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ChildMessage, strict=False)


class ChildError(Exception):
    """What a handler raised in its process; shown under its own name."""

    def __init__(self, failure: ChildFailure) -> None:
        super().__init__(failure.message)
        self.kind = failure.kind
        self.stack = failure.stack
        self.retryable = failure.retryable
        self.retry_after_ms = failure.retry_after_ms


def encode_message(message: ChildMessage) -> bytes:
    """Encode a message, prefixed with its length."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode_message(body: bytes) -> ChildMessage:
    """Decode a message. Raises: msgspec.DecodeError."""
    message: ChildMessage = _decoder.decode(body)
    return message


def decode_length(head: bytes) -> int:
    """Decode a length. Raises: ValueError when no message of ours is so long."""
    length = int.from_bytes(head, "big")
    if length > MESSAGE_MAX_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return length


def adopt_orphans() -> None:
    """Stay the ancestor of everything this process starts, even of what its children leave behind. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """The processes below one, the nearest first, orphans and other sessions included; none without /proc."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name before it may contain anything, a parenthesis too.
            after_name = each.read_text().rpartition(")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(each.parent.name))
    found: list[int] = []
    below = children.get(pid, [])
    while below:
        found += below
        below = [one for each in below for one in children.get(each, [])]
    return found
