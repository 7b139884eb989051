"""Commands as processes, forked from one that has imported the libraries they need: a start costs a fraction.

The module to run is imported by each process itself, in its own directory and environment.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

ROOT = Path(__file__).parents[2]


class Command(msgspec.Struct):
    """One process: `python -m …`, where it runs, and the directory for what it says."""

    number: int
    words: list[str]
    cwd: str
    env: dict[str, str]
    home: str


class WarmPython:
    """The process that commands are forked from; it is started when it is first needed."""

    def __init__(self, *libraries: str) -> None:
        """Take the modules that are imported once for all; none may read the environment."""
        self._libraries = libraries
        self._numbers = count()
        self._answers: dict[int, Future[int]] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    async def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> tuple[int, str, str]:
        """Run `python -m …` to its end; return its code and what it said. Several may run at once."""
        with TemporaryDirectory() as home:
            command = Command(next(self._numbers), list(words), str(cwd), dict(env), home)
            code = await asyncio.wrap_future(self._ask(command))
            out, err = ((Path(home) / name).read_text() for name in ("out", "err"))
            return code, out, err

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    def _ask(self, command: Command) -> Future[int]:
        with self._lock:
            if self._process is None:
                self._process = self._start()
            answer = self._answers[command.number] = Future()
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, *self._libraries],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=self._listen, args=[process], daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                number, code = line.split()
                self._answers.pop(int(number)).set_result(int(code))


LIBRARIES = WarmPython(
    "alembic.command",
    "httpx",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "sqlalchemy.ext.asyncio",
    "holdfast.app",
    "holdfast.cli.main",
    "holdfast.storage.postgres.database",
    "holdfast.storage.sqlite.database",
)
"""What Holdfast's commands and the applications import."""

atexit.register(LIBRARIES.close)


def serve() -> None:
    """Fork a process for each command that comes in, and answer when it has ended; in the fork, be that command."""
    ended, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    running: dict[int, int] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 1024)
            for pid, code in _reap(running):
                os.write(1, b"%d %d\n" % (running.pop(pid), code))
        if 0 in ready:
            given = os.read(0, 1 << 20)
            if not given:
                return
            *lines, rest = (rest + given).split(b"\n")
            for line in lines:
                command = msgspec.json.decode(line, type=Command)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(ended)
                    os.close(waking)
                    _become(command)
                    return
                running[pid] = command.number


def _reap(running: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    for pid in list(running):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            yield pid, os.waitstatus_to_exitcode(status)


def _become(command: Command) -> None:
    """Go on as `python -m …` would have begun."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(Path(command.home) / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
    libraries = [each for each in sys.path if each not in _own_paths()]
    os.chdir(command.cwd)
    os.environ.clear()
    os.environ.update(command.env)
    sys.path[:] = [*_own_paths(), *libraries]
    module, *words = command.words
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _own_paths() -> list[str]:
    """Return what `-m` and PYTHONPATH put at the head of the path."""
    return [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        import_module(name)
    serve()
