"""Runs a server for a test, and ends it and its processes when the standard input closes, however the test ended."""

import contextlib
import subprocess
import sys
import threading

import psutil


def main(command: list[str]) -> int:
    """Run the command, tell its process id, and return when it has ended."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    print(server.pid, flush=True)

    def end() -> None:
        sys.stdin.buffer.read()
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(server.pid)
            process.suspend()  # or it would replace those that are killed
            for each in process.children(recursive=True):
                each.kill()
        server.kill()

    threading.Thread(target=end, daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
