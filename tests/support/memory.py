"""A folder in memory for what a whole test run writes, where the machine has one: tests wait mostly for disks.

What is tested is what remains after processes and servers are killed; nothing here takes the power away.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "HOLDFAST_TEST_MEMORY"
"""Set by `make test` and `make acceptance`."""

SHARED_MEMORY = Path("/dev/shm")
NEEDED = 8 * 2**30
"""A run writes less than half of it."""

PREFIX = "holdfast-tests-"


@contextmanager
def temporary_files_in_memory(root: Path = SHARED_MEMORY, needed: int = NEEDED) -> Iterator[None]:
    """Have this process, and those it starts, keep temporary files in memory if that is wanted and there is room."""
    if not is_wanted() or "TMPDIR" in os.environ or not _is_usable(root, needed):
        yield
        return
    _remove_left_behind(root)
    folder = root / f"{PREFIX}{os.getuid()}-{os.getpid()}"
    folder.mkdir(mode=0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)


def is_wanted() -> bool:
    """Whether the run is one of those that may take so much memory."""
    return bool(os.environ.get(VARIABLE))


def _is_usable(root: Path, needed: int) -> bool:
    """Whether there is room, and what tests write there can be run."""
    if not os.access(root, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(root)
    room = min(found.f_bavail * found.f_frsize, _free_memory())
    return not found.f_flag & os.ST_NOEXEC and room >= needed


def _free_memory() -> int:
    free = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(free[1]) * 1024 if free else 0


def _remove_left_behind(root: Path) -> None:
    """Remove the folders of runs that were killed."""
    for each in root.glob(f"{PREFIX}{os.getuid()}-*"):
        try:
            os.kill(int(each.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            shutil.rmtree(each, ignore_errors=True)
        except PermissionError:
            continue
