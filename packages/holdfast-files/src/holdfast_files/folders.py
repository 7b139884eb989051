"""Folders entered one by one, each by its descriptor, so that no symbolic link leads out of the root."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.core.errors import ConfigError
from holdfast_files.errors import FilesUnreachable, InvalidObjectKey

try:
    import fcntl
except ImportError as error:
    raise ConfigError(
        "a directory of files needs a POSIX system", help="use an s3:// URL here"
    ) from error

NEW_S = 60.0
"""A file that its writer has just created may not be locked yet."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """The folders below a root, which exists after the first `create`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def enter(self, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """Give the descriptor of a folder.

        Raises: FileNotFoundError; NotADirectoryError if a part is a file; InvalidObjectKey for symbolic links.
        """
        if create:
            self.root.mkdir(parents=True, exist_ok=True)
        # The root itself may be a link: where it leads is the operator's decision.
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                inner = _enter(folder, part, create)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def prune(self, parts: Sequence[str]) -> None:
        """Remove a folder and those above it while they are empty."""
        with suppress(OSError):
            for count in range(len(parts), 0, -1):
                with self.enter(parts[: count - 1]) as folder:
                    os.rmdir(parts[count - 1], dir_fd=folder)


def _enter(folder: int, part: str, create: bool) -> int:
    try:
        return _open_folder(folder, part)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(part, dir_fd=folder)
        os.fsync(folder)
    return _open_folder(folder, part)


def _open_folder(folder: int, part: str) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and stat.S_ISLNK(mode_of(folder, part)):
            raise InvalidObjectKey(
                f"{part} is a symbolic link", help="use keys that lead through real folders only"
            ) from None
        raise


def mode_of(folder: int, name: str) -> int:
    """Return what a name in a folder is, itself and not what it links to; 0 if it does not exist."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return 0


def names_in(folder: int) -> list[str]:
    """Return the names in a folder."""
    with os.scandir(folder) as entries:
        return [each.name for each in entries]


def open_file(folder: int, name: str) -> int:
    """Return the descriptor of a regular file. Raises: FileNotFoundError, InvalidObjectKey."""
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidObjectKey(
                f"{name} is a symbolic link", help="replace it with a regular file"
            ) from None
        raise
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise FileNotFoundError(errno.ENOENT, "not a regular file", name)


@contextmanager
def write_new(folder: int, name: str, blocks: Iterator[bytes]) -> Iterator[None]:
    """Write a new file and wait until the disk has its content; it is locked until the block ends."""
    with os.fdopen(os.open(name, _WRITE_NEW, 0o666, dir_fd=folder), "wb") as file:
        lock_file(file.fileno())
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        yield


def lock_file(file: int) -> None:
    """Lock an open file against other processes, until it is closed; waits for them."""
    fcntl.flock(file, fcntl.LOCK_EX)


def is_abandoned(folder: int, name: str) -> bool:
    """Return whether a file's writer has died. Raises: FileNotFoundError."""
    file = open_file(folder, name)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return time.time() - os.fstat(file).st_mtime > NEW_S
    except BlockingIOError:
        return False
    finally:
        os.close(file)


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Turn what the operating system refuses into errors with a fix."""
    try:
        yield
    except OSError as error:
        raise FilesUnreachable(
            f"{root}: {error.strerror or error}", help="check the disk, its space and permissions"
        ) from error
