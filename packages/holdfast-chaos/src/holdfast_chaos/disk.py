"""A small file system that a campaign has for itself, and fills."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from shlex import quote

from holdfast.core.errors import CommandUsage

MAX_BYTES = 4 << 30
MIN_BYTES = 256 << 20
BLOCK_BYTES = 1 << 20
NEW_FOLDER = "/mnt/holdfast-chaos"


class SmallDisk:
    """The file system of a folder. What fills it is one file, which is removed again."""

    def __init__(self, folder: Path) -> None:
        """Raises: CommandUsage."""
        if not folder.is_dir():
            raise CommandUsage(
                f"there is no folder {folder}", help="pass the mount point of a file system to fill"
            )
        free = shutil.disk_usage(folder).free
        if free > MAX_BYTES:
            raise CommandUsage(
                f"{folder} has {free >> 30} GiB free, and filling it would fill the disk of others",
                help=f"mount a small one: {_mount_command(folder)}",
            )
        if free < MIN_BYTES:
            raise CommandUsage(
                f"{folder} has only {free >> 20} MiB free",
                help=f"a database needs {MIN_BYTES >> 20} MiB before it is filled",
            )
        self.folder = folder.absolute()
        self._file = self.folder / "holdfast-chaos.fill"

    def fill(self) -> None:
        """Take all room that is left."""
        with self._file.open("ab", buffering=0) as file:
            size = BLOCK_BYTES
            while size:
                try:
                    file.write(bytes(size))
                    os.fsync(file.fileno())
                except OSError as error:
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    size //= 2

    def free(self) -> None:
        """Give the room back."""
        self._file.unlink(missing_ok=True)


def _mount_command(folder: Path) -> str:
    """Return how to mount a small file system: over the folder that was given only if nothing is in it."""
    with suppress(OSError):
        if not folder.is_mount() and not any(folder.iterdir()):
            return f"mount -t tmpfs -o size=512m none {quote(str(folder))}"
    return f"mkdir -p {NEW_FOLDER} && mount -t tmpfs -o size=512m none {NEW_FOLDER}"
