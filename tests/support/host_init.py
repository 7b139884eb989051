"""The first process of a test's host (see `hosts`): it reaps what others leave, until its standard input closes.

The kernel ends every process of a PID namespace with the first one. The input is a pipe from the test, which closes
whatever way the test ends, so nothing of a host outlives it.
"""

import shutil
import signal
import sys
import time
from pathlib import Path

REMOVE_SECONDS = 10


def remove(folder: Path) -> None:
    """Remove a folder in which others, ended by the same test, may still write for a moment."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)


def main() -> None:
    """Report readiness, wait for the end, and remove the folder if one is given."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Ctrl-C reaches the whole process group; the folder is still to be removed then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    for folder in sys.argv[1:]:
        remove(Path(folder))


if __name__ == "__main__":
    main()
