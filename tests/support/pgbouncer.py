"""A real PgBouncer in transaction mode before a test's database, where the machine has one."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tests.support.absent import skip_because_absent
from tests.support.until import SLOWNESS, wait_until

START_SECONDS = 30 * SLOWNESS
# It names the socket's file, nobody binds it.
PORT = 6432
NEWER_VARIABLE = "HOLDFAST_TEST_PGBOUNCER"
CONFIGURATION = """
[databases]
{name} = host={host} port={port} dbname={name} user={user} password={password}

[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 20
{more}
"""


def newer_pgbouncer() -> str:
    """Return a PgBouncer that keeps prepared statements (1.21 and later); skip the test where there is none."""
    path = os.environ.get(NEWER_VARIABLE)
    if path is None:
        skip_because_absent(
            "PgBouncer 1.21 or newer", f"Set {NEWER_VARIABLE} to the path of the program."
        )
    return path


@contextmanager
def pooled(
    url: str, ignore_options: bool = True, binary: str | None = None, more: str = ""
) -> Iterator[str]:
    """Run a PgBouncer in transaction mode; yield the address of the same database through it."""
    binary = binary or shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if binary is None:
        skip_because_absent("PgBouncer is not installed", "Install the package pgbouncer.")
    known = conninfo_to_dict(url)
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(
                name=known["dbname"],
                host=known["host"],
                port=known["port"],
                user=known["user"],
                password=known["password"],
                own_port=PORT,
                folder=folder,
                more=f"ignore_startup_parameters = options\n{more}" if ignore_options else more,
            )
        )
        configuration.chmod(0o644)
        address = f"postgresql:///{known['dbname']}?host={quote(name, safe='')}&port={PORT}"
        process = subprocess.Popen(
            [binary, *_as_somebody(), str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_ready(process, folder)
            yield f"{address}&user={known['user']}"
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def _as_somebody() -> list[str]:
    """PgBouncer does not run as root."""
    if os.geteuid() != 0:
        return []
    return ["-u", pwd.getpwnam("nobody").pw_name]


def _wait_until_ready(process: subprocess.Popen[bytes], folder: Path) -> None:
    def is_open() -> bool:
        assert process.poll() is None, "PgBouncer did not start"
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex(str(folder / f".s.PGSQL.{PORT}")) == 0

    wait_until(is_open, lambda: "PgBouncer did not open its socket", START_SECONDS)
