"""A process of its own that ends a test server and removes its directory.

Its standard input is a pipe from the process that started the server; the pipe closes whatever
way that process ends, so an interrupted or killed test run leaves nothing behind.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

PATIENCE_SECONDS = 10
GO = b"."


def end_server(pid_file: Path) -> None:
    """Shut the server down at once, by force if it does not obey."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError, ValueError):
        pid = int(pid_file.read_text().splitlines()[0])
        _wake(pid)
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if pid_file.exists():
            os.kill(pid, signal.SIGKILL)


def _wake(pid: int) -> None:
    """Let the processes of a server go on that a test stopped: none of them would notice its end."""
    import psutil

    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for each in [*first.children(recursive=True), first]:
            each.resume()


def main(home: Path) -> None:
    """Wait for the word or for the pipe to close, then clean up."""
    sys.stdin.buffer.read(len(GO))
    end_server(home / "data" / "postmaster.pid")
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
