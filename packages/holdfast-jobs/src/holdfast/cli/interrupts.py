"""Ctrl-C and SIGTERM for commands that run until one of them comes.

A shell without job control starts its background commands with SIGINT ignored, and `nohup` does so with SIGHUP. A
command that runs until it is interrupted takes SIGINT all the same, because nothing else would end it in order. SIGHUP
stays ignored: that is what `nohup` is for. A command that ends by itself leaves both as they are.
"""

from __future__ import annotations

import signal


def take_interrupts() -> None:
    """Let SIGINT interrupt this command, even if it was started with the signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def hangup_signals() -> list[signal.Signals]:
    """Return the signal of a terminal that is closed, unless it is ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [] if is_ignored else [signal.SIGHUP]
