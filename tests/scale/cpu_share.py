"""Gives a server and its children a share of a processor, where control groups can be made."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PERIOD_US = 20_000

_OLD = Path("/sys/fs/cgroup/cpu")
_NEW = Path("/sys/fs/cgroup")


class CpuShare:
    """A control group for one server; it is gone with `close`, once the server is."""

    def __init__(self, name: str, share: float) -> None:
        """Make it. Raises: OSError where that is not allowed."""
        quota = int(PERIOD_US * share)
        if (_OLD / "cpu.cfs_quota_us").exists() or (_OLD / "cpu.shares").exists():
            self._folder = _OLD / name
            self._folder.mkdir()
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
            return
        self._folder = _NEW / name
        self._folder.mkdir()
        try:
            (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        except OSError:
            self._folder.rmdir()
            raise

    def hold(self, pid: int) -> None:
        """Put a process and those that it has started into the group; what they start later is there, too."""
        for each in (pid, *_children(pid)):
            # One may have ended meanwhile.
            with suppress(ProcessLookupError):
                (self._folder / "cgroup.procs").write_text(str(each))

    def close(self) -> None:
        """Remove the group, whose processes have ended."""
        self._folder.rmdir()


def can_share() -> bool:
    """Whether control groups can be made here."""
    if os.geteuid() != 0:
        return False
    try:
        CpuShare(f"holdfast-probe-{os.getpid()}", 0.5).close()
    except OSError:
        return False
    return True


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]
