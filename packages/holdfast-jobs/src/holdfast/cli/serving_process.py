"""A process that serves, be it a worker, a tick or the API: its options, logs, signals, exit and tuning."""

from __future__ import annotations

import gc
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from holdfast.cli.console import log_messages, wants_colour
from holdfast.cli.interrupts import hangup_signals, take_interrupts

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from logging import Formatter

log = getLogger("holdfast.cli")

FORCED_EXIT_AFTER_S = 10.0
"""A process that is still alive this long after everything should have ended is ended from outside its event loop."""

YOUNG_OBJECTS = 5_000
"""So many are made before the collector looks for cycles among them: what a flush leaves is freed without it."""
SWITCH_INTERVAL_S = 0.0001
"""How long a thread keeps the interpreter while another waits for it. At Python's own 5 ms the thread that writes to
SQLite stalls while handlers run: with shorter turns a SQLite worker finishes 5 % more jobs. Threads that only compute
lose as much, and so do sync handlers on PostgreSQL."""


def exit_on_signal() -> None:
    """Exit with 0 on a signal while there is nothing to stop yet.

    The first process of a container has no default handlers: it would ignore the signal.
    """
    take_interrupts()
    for number in (signal.SIGTERM, *hangup_signals()):
        signal.signal(number, lambda *_: sys.exit(0))


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
    for number in (signal.SIGTERM, signal.SIGINT, *hangup_signals()):
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

    def stop_after(self, pipe: int) -> None:
        """Stop as on SIGTERM once the other end of a pipe is closed, unless that has come: a second one aborts."""

        def watch() -> None:
            os.read(pipe, 1)
            if self._exits_at == math.inf:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, name="holdfast supervisor", daemon=True).start()

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


def find_uvloop(is_wanted: bool) -> Callable[[], AbstractEventLoop] | None:
    """Return what makes uvloop's event loop, on which async handlers cost less; None means asyncio's own."""
    if not is_wanted:
        return None
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def tune_interpreter(dialect: str) -> None:
    """Prepare the interpreter for long service on a database of this dialect; call it when everything is loaded."""
    # What is loaded stays: a collection that walked it again and again would delay every handler and every page.
    gc.freeze()
    young, *older = gc.get_threshold()
    if young:
        gc.set_threshold(max(young, YOUNG_OBJECTS), *older)
    if dialect == "sqlite":
        sys.setswitchinterval(SWITCH_INTERVAL_S)


T = TypeVar("T")

slots_option = click.option(
    "--slots", type=click.IntRange(1, 1_000), help="Maximum concurrent handlers.  [HOLDFAST_SLOTS]"
)
log_jobs_option = click.option(
    "--log-jobs", is_flag=True, help="Log each job, regardless of the level."
)


def port_option(help: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command `--port`, the dashboard's."""
    allowed = click.IntRange(0, 65_535)
    return click.option("--port", type=allowed, default=4000, show_default=True, help=help)


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def log_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--log-level` and `--log-format`."""
    levels = click.Choice(("debug", "info", "warning", "error"))
    forms = click.Choice(("auto", "pretty", "plain", "json"))
    level = click.option(
        "--log-level", type=levels, default="info", show_default=True, help="Minimum log level."
    )
    form = click.option(
        "--log-format",
        type=forms,
        default="auto",
        show_default=True,
        help="auto is pretty on a terminal, else plain; json is JSON lines only.",
    )
    return level(form(command))


def set_up_logging(level: str, form: str, jobs: bool = False) -> None:
    """Log to stderr from this level on, and every job's outcome if `jobs` is set."""
    import logging

    from holdfast.observe.logging import JOBS, log_json

    if form == "json":
        log_json(level)
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_formatter(form))
        logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    log_messages(log if form == "json" else None)
    if jobs:
        logging.getLogger(JOBS).setLevel(logging.DEBUG)


def _formatter(form: str) -> Formatter:
    import logging

    from holdfast.observe.logging import PrettyFormatter

    if form == "pretty" or (form == "auto" and sys.stderr.isatty()):
        return PrettyFormatter(wants_colour(sys.stderr))
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    return formatter
