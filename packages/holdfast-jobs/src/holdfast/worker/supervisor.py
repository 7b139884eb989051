"""Runs several worker processes: one that dies is reported and restarted, signals are passed on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence

from holdfast.core.events import Event, Observer, event
from holdfast.worker.clock import SystemClock

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
HEALTHY_S = 60.0


class Supervisor:
    """Keeps a child of each command alive until stopped.

    A child that exits with 0 was asked to, and is not replaced; any other exit is reported and followed by a restart,
    after a pause that grows while children keep dying young, or cannot be started.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        observer: Observer | None = None,
        on_started: Callable[[int], None] = lambda pid: None,
        inherited: Sequence[int] = (),
    ) -> None:
        """inherited: files that are open in the children, too."""
        self._commands = commands
        self._inherited = inherited
        self._observer = observer
        self._clock = SystemClock()
        self._on_started = on_started
        self._stopping = asyncio.Event()
        self._signal = signal.SIGTERM
        self._children: set[asyncio.subprocess.Process] = set()

    def pass_on(self, number: signal.Signals) -> None:
        """Pass a signal to every child and replace none from now on; the children know what a second one means."""
        self._stopping.set()
        self._signal = number
        for child in self._children:
            _send(child, number)

    async def run(self) -> int:
        """Supervise until every child has ended; return the worst exit code."""
        codes = await asyncio.gather(*(self._keep_alive(each) for each in self._commands))
        return max(codes)

    async def _keep_alive(self, command: Sequence[str]) -> int:
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                child = await self._start(command)
            except OSError as error:
                # The system has no room for another process now, as after one of them has filled its memory.
                self._observe(event("child_not_started", error=str(error)))
            else:
                code = await self._wait_for(child)
                if self._stopping.is_set() and code == -self._signal:
                    # It was signalled before it could handle that, and had begun nothing.
                    return 0
                if code == 0 or self._stopping.is_set():
                    return code if code >= 0 else 1
                self._observe(event("child_died", pid=child.pid, exit_code=code))
                if self._clock.monotonic() - began >= HEALTHY_S:
                    pause = FIRST_PAUSE_S
            await self._clock.wait(self._stopping, pause)
            pause = min(MAX_PAUSE_S, pause * 2)
        return 0

    async def _start(self, command: Sequence[str]) -> asyncio.subprocess.Process:
        """Start a child. Raises: OSError."""
        # A session of its own: Ctrl-C reaches the children once, through us.
        return await asyncio.create_subprocess_exec(
            *command, start_new_session=True, pass_fds=self._inherited
        )

    async def _wait_for(self, child: asyncio.subprocess.Process) -> int:
        """Tell of a child that was started, and wait for its end; return its exit code."""
        self._children.add(child)
        self._on_started(child.pid)
        if self._stopping.is_set():
            # The signal came while it was being started, too early to reach it.
            _send(child, self._signal)
        code = await child.wait()
        self._children.discard(child)
        return code

    def _observe(self, event: Event) -> None:
        if self._observer is not None:
            self._observer.observe(event)


def _send(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)
