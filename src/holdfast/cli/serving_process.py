"""The end of a serving process: by signals, at once while nothing has begun and in order from then on, or by force.

The interpreter of a process that is all ours: a worker or a server that was started from the command line.
"""

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

LAST_RESORT_S = 10.0
"""A process that still lives so long after everything should have ended is ended from outside its event loop."""


def end_at_once() -> None:
    """Leave with 0 when told to end before there is anything to end.

    The first process of a container has no such default: it would not hear of the signal at all.
    """
    for number in (signal.SIGTERM, *_hang_up()):
        signal.signal(number, _leave)


def end_in_order(
    stop: Callable[[signal.Signals], object],
    last_resort: LastResort | None = None,
    cap_s: float = 0,
) -> None:
    """Call `stop` with each signal from now on, on the running loop; the last resort counts from the first of them."""
    import asyncio

    loop = asyncio.get_running_loop()

    def told(number: int, frame: object) -> None:
        if last_resort is not None:
            last_resort.arm(cap_s)
        loop.call_soon_threadsafe(stop, signal.Signals(number))

    # The loop's own handlers would wait for the loop, and a handler of the application may be blocking it.
    for number in (signal.SIGTERM, signal.SIGINT, *_hang_up()):
        signal.signal(number, told)


class LastResort:
    """Ends the process when its event loop cannot: a thread that waits, and then leaves by force.

    Jobs and slots that are held then are left to the end of their leases.
    """

    def __init__(
        self, holding: Callable[[], Sequence[str]], armed: Callable[[], object] = lambda: None
    ) -> None:
        """Take who says what is still running, and who is to know that the end has begun; neither needs the loop."""
        self._holding = holding
        self._armed = armed
        self._ends_at = math.inf

    def arm(self, seconds: float) -> None:
        """End the process if it still lives well after so long; the soonest of all counts."""
        self._armed()
        ends_at = time.monotonic() + seconds + LAST_RESORT_S
        if ends_at < self._ends_at:
            self._ends_at = ends_at
            waiting = threading.Timer(seconds + LAST_RESORT_S, self._end)
            waiting.daemon = True
            waiting.start()

    def _end(self) -> None:
        leave(1, self._holding())


def leave(code: int, abandoned: Sequence[str] = ()) -> NoReturn:
    """End the process now: a handler that obeys nobody would keep its thread or task, and with it the process."""
    if abandoned:
        log.error("abandoned what did not stop: %s", ", ".join(abandoned))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Nobody reads it any more.
            continue
    os._exit(code)


def _hang_up() -> list[signal.Signals]:
    """A terminal that was closed ends a process too, unless `nohup` said that it should not."""
    is_silenced = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [] if is_silenced else [signal.SIGHUP]


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


TURN_S = 0.0001
"""How long a thread keeps the interpreter while another waits for it. At Python's own 5 ms the thread that writes to
SQLite stands still while handlers run: with shorter turns a SQLite worker ends 5 % more jobs. Threads that only compute
lose as much."""


def make_ours() -> None:
    """Set it up for long service; to be called when everything is loaded."""
    # What is loaded stays: a collection that walked it again and again would hold up every handler and every page.
    gc.freeze()
    sys.setswitchinterval(TURN_S)
