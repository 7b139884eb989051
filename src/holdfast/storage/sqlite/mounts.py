"""Refuses network file systems, whose locks and shared memory do not keep SQLite's promises."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from holdfast.core.errors import UnusableUrl

MOUNTS = Path("/proc/self/mounts")

_NETWORK = frozenset(
    {
        *("9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
        *("glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf"),
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def read_mounts() -> str:
    """The mounts of this process as the system lists them; nothing where it keeps no such list."""
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def refuse_network_mount(path: Path, mounts: str) -> None:
    """Raise UnusableUrl when the file lies, or would lie, on a network file system."""
    kind = _file_system_of(PurePosixPath(path.resolve()), mounts)
    if kind in _NETWORK:
        raise UnusableUrl(
            f"{path} lies on a network file system ({kind})",
            help="put the file on a local disk, or use PostgreSQL",
        )


def _file_system_of(path: PurePosixPath, mounts: str) -> str | None:
    """The type of the mount that holds the path: the deepest one, and of those the latest."""
    depth, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if path.is_relative_to(point) and len(point.parts) >= depth:
            depth, kind = len(point.parts), fields[2]
    return kind
