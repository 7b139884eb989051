"""Programs that tests start have the signals of a login shell, however the test run itself was started."""

import os
import signal

IGNORED_BY_STARTERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""What `nohup`, or a shell that runs a command in the background, has a process ignore."""


def start_programs_with_default_signals() -> None:
    """Have programs started from here not ignore what this process was told to ignore; it does so itself.

    A program inherits that a signal is ignored, but not that a function handles it.
    """
    is_deaf_to_hangups = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in IGNORED_BY_STARTERS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    if is_deaf_to_hangups and "PYTEST_XDIST_WORKER" in os.environ:
        # The programs would now end with the terminal, so they get a session without one.
        os.setsid()
