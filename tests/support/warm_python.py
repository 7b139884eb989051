"""Python commands as processes, forked from one that has imported the libraries they need: a start costs a fraction.

For commands whose start is not what is tested. The module to run is imported by each process itself, in its own
directory and environment.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, Any

from tests.support import warm_client, warm_server
from tests.support.until import TEST_TIMEOUT_S

PROGRAMS = {
    "python": "",
    "python3": "",
    "alembic": "-m alembic",
    "django-admin": "-m django",
    "holdfast": "-m holdfast",
}
"""What shells find, and the words that stand for it after `python`."""


class WarmProcess:
    """A command that runs; used as one uses `subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self.returncode: int | Any = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._connection = connection
        self._said = b""
        self._listen(None, lines=1)
        self.pid = int(self._said.split()[0])

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its code."""
        if self.returncode is None:
            try:
                self._listen(timeout, lines=2)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self.returncode = int(self._said.split()[1])
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read what it says until its end, from its pipes."""
        with ThreadPoolExecutor(2) as threads:
            out, err = (threads.submit(_read, each) for each in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return out.result(), err.result()

    def poll(self) -> int | None:
        """Return its code if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended since.
            with suppress(BrokenPipeError):
                self._connection.send(b"%d\n" % number)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it with -9."""
        self.send_signal(signal.SIGKILL)

    def _listen(self, timeout: float | None, lines: int) -> None:
        self._connection.settimeout(timeout)
        try:
            while self._said.count(b"\n") < lines:
                given = self._connection.recv(64)
                assert given, "the warm process has ended"
                self._said += given
        except BlockingIOError:
            raise TimeoutError from None


def _read(pipe: IO[str] | None) -> str:
    """Read the rest of a pipe, unless that was done before."""
    if pipe is None or pipe.closed:
        return ""
    with pipe:
        return pipe.read()


class WarmPython:
    """The process that commands are forked from; it is started when it is first needed."""

    def __init__(self, *modules: str) -> None:
        """Take the modules that are imported once for all; none may read the environment."""
        self.modules = modules
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._home = Path()

    def start(
        self,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stdout: IO[Any],
        stderr: IO[Any] | None = None,
        stdin: int | None = None,
    ) -> WarmProcess:
        """Start `python WORD…`; what it says goes to files, its errors to the same one unless told otherwise.

        Its standard input is a file descriptor, such as that of a socket, or nothing.
        """
        address = self._address()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        request = warm_server.Request(str(cwd), list(words), dict(env)).pack()
        with Path(os.devnull).open() as nothing:
            given = nothing.fileno() if stdin is None else stdin
            files = [given, stdout.fileno(), (stderr or stdout).fileno()]
            socket.send_fds(connection, [request[: warm_server.LENGTH]], files)
        connection.sendall(request[warm_server.LENGTH :])
        return WarmProcess(connection)

    def open(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> WarmProcess:
        """Start `python WORD…` with pipes for what it says."""
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with os.fdopen(out_end, "w") as to_out, os.fdopen(err_end, "w") as to_err:
            process = self.start(words, cwd, env, to_out, to_err)
        process.stdout, process.stderr = os.fdopen(out), os.fdopen(err)
        return process

    def run(
        self,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        timeout: float = TEST_TIMEOUT_S,
        joined: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run `python WORD…` to its end; with `joined`, its errors are among what it said. Several may run at once."""
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            process = self.start(words, cwd, env, out, None if joined else err)
            try:
                code = process.wait(timeout)
            except BaseException:
                process.kill()
                raise
            for each in (out, err):
                each.seek(0)
            return subprocess.CompletedProcess(list(words), code, out.read(), err.read())

    def programs(self) -> Path:
        """Return a directory for PATH, so that shells use it too."""
        address = self._address()
        place = self._home / "bin"
        if not place.exists():
            place.mkdir()
            for name, words in PROGRAMS.items():
                command = f'"{sys.executable}" -IS "{warm_client.__file__}" "{address}" {words}'
                (place / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
                (place / name).chmod(0o755)
        return place

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            shutil.rmtree(self._home, ignore_errors=True)
            self._process = None

    def _address(self) -> str:
        with self._lock:
            if self._process is None:
                self._home = Path(mkdtemp(prefix="warm-"))
                self._process = self._start()
        return str(self._home / "socket")

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process and return when it listens."""
        atexit.register(self.close)
        process = subprocess.Popen(
            [sys.executable, warm_server.__file__, str(self._home / "socket"), *self.modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline(), "the libraries could not be imported"
        return process


LIBRARIES = WarmPython(
    "alembic.command",
    "httpx",
    "jinja2",
    "nats",
    "psycopg",
    "pytest",
    "redis.asyncio",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "sqlalchemy.ext.asyncio",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "holdfast.app",
    "holdfast.cli.main",
    "holdfast.cli.worker",
    "holdfast.scheduler.assembly",
    "holdfast.scheduler.background",
    "holdfast.scheduler.doctor",
    "holdfast.storage.postgres.database",
    "holdfast.storage.sqlite.database",
    "holdfast.web.app",
    "holdfast.worker.worker",
)
"""What Holdfast's commands and the applications import."""
