"""Signals that end a serving process: at once while nothing has begun, in order from then on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NoReturn


def end_at_once() -> None:
    """Leave with 0 when told to end before there is anything to end.

    The first process of a container has no such default: it would not hear of the signal at all.
    """
    for number in (signal.SIGTERM, *_hang_up()):
        signal.signal(number, _leave)


def end_in_order(stop: Callable[[signal.Signals], object]) -> None:
    """Call `stop` with each signal from now on, on the running loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, *_hang_up()):
        loop.add_signal_handler(number, stop, number)


def _hang_up() -> list[signal.Signals]:
    """A terminal that was closed ends a process too, unless `nohup` said that it should not."""
    is_silenced = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [] if is_silenced else [signal.SIGHUP]


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)
