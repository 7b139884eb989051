"""Signals, the exit and the tuning of a process that serves: a worker, a tick or the API."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from logging import getLogger
from typing import NoReturn

log = getLogger("holdfast.cli")

FORCED_EXIT_AFTER_S = 10.0
"""A process that is still alive this long after everything should have ended is ended from outside its event loop."""

SWITCH_INTERVAL_S = 0.0001
"""How long a thread keeps the interpreter while another waits for it. At Python's own 5 ms the thread that writes to
SQLite stalls while handlers run: with shorter turns a SQLite worker finishes 5 % more jobs. Threads that only compute
lose as much."""


def exit_on_signal() -> None:
    """Exit with 0 on a signal while there is nothing to stop yet.

    The first process of a container has no default handlers: it would ignore the signal.
    """
    for number in (signal.SIGTERM, *_hangup_signals()):
        signal.signal(number, _exit_cleanly)


def stop_on_signal(
    stop: Callable[[signal.Signals], object],
    forced_exit: ForcedExit | None = None,
    timeout_s: float = 0,
) -> None:
    """Call `stop` with each signal from now on, on the running loop; the forced exit counts from the first of them."""
    import asyncio

    loop = asyncio.get_running_loop()

    def on_signal(number: int, frame: object) -> None:
        if forced_exit is not None:
            forced_exit.arm(timeout_s)
        loop.call_soon_threadsafe(stop, signal.Signals(number))

    # The loop's own handlers would wait for the loop, and a handler of the application may be blocking it.
    for number in (signal.SIGTERM, signal.SIGINT, *_hangup_signals()):
        signal.signal(number, on_signal)


class ForcedExit:
    """Ends the process when its event loop cannot, from a timer thread.

    Jobs and slots that are still held are left until their leases expire.
    """

    def __init__(
        self, held: Callable[[], Sequence[str]], on_armed: Callable[[], object] = lambda: None
    ) -> None:
        """Take what names the work still running, and what to call when armed; neither needs the loop."""
        self._held = held
        self._on_armed = on_armed
        self._exits_at = math.inf

    def arm(self, seconds: float) -> None:
        """Exit if the process is still alive well after this long; the earliest of all calls counts."""
        self._on_armed()
        exits_at = time.monotonic() + seconds + FORCED_EXIT_AFTER_S
        if exits_at < self._exits_at:
            self._exits_at = exits_at
            timer = threading.Timer(seconds + FORCED_EXIT_AFTER_S, self._exit)
            timer.daemon = True
            timer.start()

    def _exit(self) -> None:
        exit_now(1, self._held())


def exit_now(code: int, abandoned: Sequence[str] = ()) -> NoReturn:
    """End the process now: a handler that ignores its abort would keep its thread or task, and with it the process."""
    if abandoned:
        log.error("abandoned what did not stop: %s", ", ".join(abandoned))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # The reader is gone.
            continue
    os._exit(code)


def tune_interpreter() -> None:
    """Prepare the interpreter for long service; call it when everything is loaded."""
    # What is loaded stays: a collection that walked it again and again would delay every handler and every page.
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def _hangup_signals() -> list[signal.Signals]:
    """A closed terminal ends the process too, unless `nohup` is in effect."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [] if is_ignored else [signal.SIGHUP]


def _exit_cleanly(*_: object) -> NoReturn:
    raise SystemExit(0)
