"""Handlers that run in processes of their own: CPU-bound work that can be killed at its timeout.

The processes that a process has started, wherever they went: sessions of their own, and orphans, included.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.codec import decode_any
from holdfast.core.errors import Busy, HandlerInvalid
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import to_datetime
from holdfast.core.registry import JobType
from holdfast.worker.ipc import (
    LENGTH_BYTES,
    Answer,
    Ask,
    ChildError,
    Failure,
    Message,
    Progress,
    Ready,
    framed,
    length_of,
    parsed,
)
from holdfast.worker.job import Call, Job

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Stay the ancestor of everything this process starts, also of what its children leave behind. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """The processes below one, the nearest first; none where the system does not tell."""
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


class ChildDied(Exception):
    """The handler's process ended without an answer."""


class Child:
    """One process that runs one handler, a job at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_ready = False

    @classmethod
    async def start(cls, target: str) -> Child:
        """Start a process for the handler named `module:function`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.worker.child",
            target,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            start_new_session=True,
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, by itself or by somebody's hand."""
        return self._process.returncode is None

    async def run(
        self, ask: Ask, begun: Callable[[], None], progress: Callable[[float, str], None]
    ) -> Answer | Failure:
        """Have one job run, say when it begins, and hear how far it is. Raises: ChildDied."""
        try:
            if not self._is_ready:
                await self._hear()
                self._is_ready = True
            begun()
            await self._say(ask)
            message = await self._hear()
            while isinstance(message, Progress):
                progress(message.fraction, message.note)
                message = await self._hear()
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await self._process.wait()
            raise ChildDied(f"the handler's process ended with code {code}") from error
        except (msgspec.DecodeError, ValueError) as error:
            raise ChildDied(f"the handler's process answered nonsense: {error}") from error
        assert not isinstance(message, Ask | Ready)
        return message

    async def _say(self, message: Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(framed(message))
        await self._process.stdin.drain()

    async def _hear(self) -> Message:
        stdout = self._process.stdout
        assert stdout is not None
        length = length_of(await stdout.readexactly(LENGTH_BYTES))
        return parsed(await stdout.readexactly(length))

    async def end(self) -> None:
        """Let an idle process go, by force if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the process now, together with the programs that its handler has started."""
        for pid in await asyncio.to_thread(descendants, self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class ProcessHandlers:
    """Idle processes by handler, reused from job to job."""

    def __init__(self, begun: Callable[[Job[Any]], None]) -> None:
        """`begun` is called when a process has a job's handler at hand and begins with it."""
        self._begun = begun
        self._idle: dict[str, list[Child]] = {}

    def call(self, type: JobType) -> Call:
        """The call that runs a type's handler in a process."""
        target = target_of(type)

        async def run(job: Job[Any]) -> Any:
            idle = self._idle.setdefault(target, [])
            child = _alive(idle) or await Child.start(target)
            try:
                message = await child.run(_ask(job), partial(self._begun, job), job.progress)
            except BaseException:
                await child.kill()
                raise
            idle.append(child)
            return _value(message)

        return run

    async def close(self) -> None:
        """End every idle process."""
        children = [each for idle in self._idle.values() for each in idle]
        self._idle.clear()
        await asyncio.gather(*(each.end() for each in children))


def _alive(idle: list[Child]) -> Child | None:
    """Take a process that still lives; those that ended while they were idle are forgotten."""
    while idle:
        child = idle.pop()
        if child.is_alive:
            return child
    return None


def target_of(type: JobType) -> str:
    """The importable name of a type's handler. Raises: HandlerInvalid."""
    module = getattr(type.handler, "__module__", "__main__")
    # A partial or an object that can be called is not found under a name of its own.
    name = getattr(type.handler, "__qualname__", "<nameless>")
    if module == "__main__" or "<" in name:
        raise HandlerInvalid(
            f"the handler of {type.name} cannot be imported by a process of its own",
            help="move it to the top level of a module that can be imported",
        )
    return f"{module}:{name}"


def _ask(job: Job[Any]) -> Ask:
    claimed = job.claimed
    return Ask(
        id=claimed.id,
        chain_id=claimed.chain_id,
        chain_index=claimed.chain_index,
        type=claimed.type,
        input=claimed.input,
        attempt=claimed.attempt,
        fence=claimed.fence,
        priority=claimed.priority,
        created_at=claimed.created_at,
        key=claimed.key,
        trace=claimed.trace,
        worker=job.worker,
        blockers=job.blocker_records,
    )


def _busy(failure: Failure, delay_ms: int) -> Busy:
    until = to_datetime(failure.busy_until)
    error = Busy(delay_ms / 1000) if until is None else Busy(at=until)
    # The child's own words say already when.
    error.message = failure.message
    return error


def _value(message: Answer | Failure) -> Any:
    if isinstance(message, Failure):
        if message.busy_ms is not None:
            raise _busy(message, message.busy_ms)
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
