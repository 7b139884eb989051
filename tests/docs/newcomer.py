"""A newcomer: an empty folder with the README's application, in which commands are run as printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.settings.load import PREFIXES
from tests.docs.snippets import python_blocks
from tests.support.until import SLOWNESS
from tests.support.warm_python import LIBRARIES

PATIENCE_S = 300 * SLOWNESS
"""A page is many short processes, each of which may have to wait for a busy machine."""


def move_in(folder: Path) -> None:
    """Write the README's first block as app.py, as its readers do."""
    (folder / "app.py").write_text(python_blocks("README.md")[0], encoding="utf-8")


def run(folder: Path, *command: str, **variables: str) -> str:
    """Run a command there, without this project's settings, and return its standard output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES)}
    programs = (str(LIBRARIES.programs()), str(Path(sys.executable).parent))
    environment["PATH"] = os.pathsep.join((*programs, environment.get("PATH", "")))
    path = (str(folder), environment.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    # A newcomer has neither; they are more than half of what a run of pytest costs.
    environment["PYTEST_ADDOPTS"] = "-p no:schemathesis -p no:hypothesispytest"
    if command[0] == sys.executable:
        done = LIBRARIES.run(command[1:], folder, environment | variables, PATIENCE_S)
    else:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
