"""A PostgreSQL server process of our own: initialised, started, stopped, restarted, removed."""

import hashlib
import hmac
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from holdfast.cli.serving_process import free_port
from holdfast_demo.local_postgres import runnable_binaries, server_identity
from tests.support import orphan_guard
from tests.support.until import SLOWNESS

START_SECONDS = 30 * SLOWNESS
START_ATTEMPTS = 5
BESIDE_ORPHANS = "is still in use"
"""What a server says of the shared memory of a killed one, whose processes end a moment after it."""

USUAL_LOGIN_ROUNDS = 4096
# Tests open many connections, and the usual hashing is half of what one costs.
QUICK_LOGIN_ROUNDS = 1
SETTINGS = {
    "fsync": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    # Neither UTC nor a whole number of hours: a timestamp that loses its zone shows at once.
    "timezone": "Asia/Kathmandu",
    "unix_socket_directories": "",
}
StopMode = Literal["fast", "immediate", "kill"]
STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "kill": signal.SIGKILL,
}


class PostgresProcess:
    """A server on a free loopback port with a password of its own; `close` removes all of it."""

    def __init__(
        self,
        binaries: Path,
        settings: Mapping[str, str] | None = None,
        login_rounds: int = USUAL_LOGIN_ROUNDS,
        primary: "PostgresProcess | None" = None,
        environment: Mapping[str, str] | None = None,
        model: "PostgresProcess | None" = None,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        self._data = self.home / "data"
        self._log = self.home / "log"
        self._identity = server_identity()
        self._settings = SETTINGS | dict(settings or {})
        self._environment = os.environ | dict(environment or {})
        origin = primary or model
        self._password: str = origin._password if origin else secrets.token_urlsafe(16)
        self._login_rounds = login_rounds
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = subprocess.Popen(
            [sys.executable, "-I", orphan_guard.__file__, self.home],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            if self._identity:
                self.home.chmod(0o711)
            self._binaries = runnable_binaries(binaries, self._identity, self.home / "installation")
            if primary:
                self._follow(primary)
            elif model:
                self._copy(model)
            else:
                self._initialise()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address of the database `postgres`, the same after a restart."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres"

    @property
    def pid(self) -> int:
        """The first process of the running server."""
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    def start(self) -> None:
        """Start the server on its port and return when it accepts connections."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._start()
            except RuntimeError as error:
                if BESIDE_ORPHANS not in str(error) or time.monotonic() > deadline:
                    raise

    def _start(self) -> None:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(self._port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment,
                **self._identity,
            )
        self._wait_until_ready(self._process)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: `fast` in order, `immediate` without a checkpoint, `kill` as a crash."""
        if self._process is None:
            return
        self._process.send_signal(STOP_SIGNALS[mode])
        self._process.wait()
        self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start the server; its data, port and password stay."""
        self.stop(mode)
        self.start()

    def stand_by(self) -> None:
        """Have the server, which is stopped, come up as a replica that waits for its primary."""
        (self._data / "standby.signal").touch()

    def close(self) -> None:
        """End the server and remove its directory."""
        self.stop("immediate")
        self._guard.communicate(orphan_guard.GO)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_data_folder(self) -> None:
        self._data.mkdir(mode=0o700)
        self._own(self._data)

    def _own(self, path: Path) -> None:
        os.chown(path, self._identity.get("user", -1), self._identity.get("group", -1))

    def _initialise(self) -> None:
        self._make_data_folder()
        password_file = self.home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(_verifier(self._password, self._login_rounds))
        self._own(password_file)
        initdb: list[str | Path] = [self._binaries / "initdb", "--pgdata", self._data]
        initdb += ["--username=postgres", "--pwfile", password_file, "--auth=scram-sha-256"]
        initdb += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        with self._log.open("ab") as log:
            done = subprocess.run(initdb, stdout=log, stderr=log, check=False, **self._identity)
        password_file.unlink()
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{self._end_of_log()}")

    def _copy(self, model: "PostgresProcess") -> None:
        """Begin with the data of a server that is stopped: a tenth of what it costs to make them again."""
        subprocess.run(["cp", "-a", model._data, self._data], check=True)

    def _follow(self, primary: "PostgresProcess") -> None:
        """Begin as a standby that follows another server."""
        backup: list[str | Path] = [self._binaries / "pg_basebackup", "--pgdata", self._data]
        backup += ["--dbname", primary.url, "--write-recovery-conf"]
        backup += ["--checkpoint=fast", "--no-sync"]
        self._make_data_folder()
        with self._log.open("ab") as log:
            done = subprocess.run(backup, stdout=log, stderr=log, check=False, **self._identity)
        if done.returncode != 0:
            raise RuntimeError(f"pg_basebackup failed:\n{self._end_of_log()}")

    def _start_on_a_free_port(self) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self._port = free_port()
            try:
                self.start()
            except RuntimeError:
                # Somebody may have taken the port between our look and the server's.
                if attempt == START_ATTEMPTS:
                    raise
            else:
                return

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if self._reports_ready(process.pid):
                return
            time.sleep(0.01)
        self.stop("immediate")
        raise RuntimeError(f"PostgreSQL did not start:\n{self._end_of_log()}")

    def _reports_ready(self, pid: int) -> bool:
        """Tell whether the server wrote "ready" into the eighth line of its lock file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and int(lines[0]) == pid and lines[7].strip() == "ready"

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def _verifier(password: str, rounds: int) -> str:
    """Return what a server keeps of a password (RFC 5802), as it accepts it in the password's place."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    kept = [b64encode(each).decode() for each in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${rounds}:{kept[0]}${kept[1]}:{kept[2]}"
