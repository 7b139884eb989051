"""Objects in a local directory: each is a file under its key, and its checksum is kept beside it.

    invoices/0042.pdf                              the content, as it is
    .holdfast/sums/<hash of the key>/<SHA-256>     media type and size of a content that the key has, or is about to get
    .holdfast/tmp/                                 files being written
    .holdfast/locks/                               one writer per key at a time, also across processes

A write puts the checksum in place, renames the finished file over the key, then removes older checksums. A crash in
between leaves the old content or the new one, and the checksums of both: a reader finds the one that fits.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from holdfast_files.backend import ListedFile, ObjectReader, StoredFile, guess_type
from holdfast_files.content import BLOCK, Content
from holdfast_files.errors import (
    FilesUnreachable,
    InvalidObjectKey,
    ObjectCorrupted,
    ObjectNotFound,
)
from holdfast_files.folders import (
    Folders,
    disk_errors,
    is_abandoned,
    lock_file,
    mode_of,
    names_in,
    open_file,
    write_new,
)
from holdfast_files.keys import RESERVED
from holdfast_files.links import LinkSigner

SWEEP_EVERY_S = 600.0
"""How often a process that writes looks for what died ones left unfinished."""

_TRIES = 10

_TEMPORARY = (RESERVED, "tmp")
_LOCKS = (RESERVED, "locks")


class DirectoryBackend:
    """See `backend.FileBackend`."""

    def __init__(self, root: Path, links: LinkSigner) -> None:
        """Use a directory; the first write creates it."""
        self._folders = Folders(root)
        self._root = root
        self._links = links
        self._swept_at = -math.inf

    def write(self, key: str, content: Content, content_type: str) -> None:
        self._store(key, content, content_type, replace=True)

    def create(self, key: str, content: Content, content_type: str) -> bool:
        return self._store(key, content, content_type, replace=False)

    def head(self, key: str) -> StoredFile:
        with closing(self.reader(key)) as reader:
            return reader.info

    def stream(self, key: str) -> tuple[StoredFile, Generator[bytes, None, None]]:
        reader = self.reader(key)
        return reader.info, _blocks(reader)

    def reader(self, key: str) -> ObjectReader:
        with disk_errors(self._root):
            for _ in range(_TRIES):
                file = self._open(key)
                try:
                    kept = self._checksums(key)
                    # A checksum stays as long as the key holds its content, so these fit the file.
                    if self._is_current(key, file):
                        return _FileReader(self._root, os.dup(file), _identify(key, file, kept))
                finally:
                    os.close(file)
        raise FilesUnreachable(f"{key} is replaced too often to be read", help="try again")

    def delete(self, key: str) -> None:
        *parts, name = key.split("/")
        with disk_errors(self._root), suppress(FileNotFoundError, NotADirectoryError):
            with self._folders.enter(parts) as folder:
                mode = mode_of(folder, name)
                if not mode or stat.S_ISDIR(mode):
                    return
            with self._lock(key):
                with self._folders.enter(parts) as folder:
                    os.unlink(name, dir_fd=folder)
                    os.fsync(folder)
                self._forget(key, keep="")
                self._folders.prune(parts)

    def entries(self, prefix: str) -> Iterator[ListedFile]:
        parts = prefix.split("/") if prefix else []
        with disk_errors(self._root), suppress(FileNotFoundError, NotADirectoryError):
            yield from self._walk(parts)

    def url(self, key: str, expires_s: int, filename: str | None, now: float) -> str:
        return self._links.url(key, int(now) + expires_s, filename or key.rpartition("/")[2])

    def _store(self, key: str, content: Content, content_type: str, *, replace: bool) -> bool:
        with disk_errors(self._root), self._write_temporary(content) as unfinished, self._lock(key):
            for _ in range(_TRIES):
                # Deleting another key may remove an empty folder just before the rename.
                with suppress(FileNotFoundError):
                    return self._publish(key, content, content_type, unfinished, replace)
        raise FilesUnreachable(f"the folder of {key} is removed while it is written to")

    def _publish(
        self,
        key: str,
        content: Content,
        content_type: str,
        unfinished: tuple[int, str],
        replace: bool,
    ) -> bool:
        *parts, name = key.split("/")
        temporary, source = unfinished
        with self._folder_of(key, parts) as folder:
            mode = mode_of(folder, name)
            if stat.S_ISDIR(mode):
                raise InvalidObjectKey(f"{key} is a folder of other objects")
            if not replace and mode:
                return False
            self._remember(key, content, content_type)
            os.replace(source, name, src_dir_fd=temporary, dst_dir_fd=folder)
            os.fsync(folder)
            self._forget(key, keep=content.sha256)
            return True

    @contextmanager
    def _folder_of(self, key: str, parts: list[str]) -> Iterator[int]:
        try:
            with self._folders.enter(parts, create=True) as folder:
                yield folder
        except NotADirectoryError:
            raise InvalidObjectKey(f"a part of {key} is an object, not a folder") from None

    @contextmanager
    def _write_temporary(self, content: Content) -> Iterator[tuple[int, str]]:
        """Write the content to a temporary file; it is gone afterwards, unless it was renamed."""
        with self._folders.enter(_TEMPORARY, create=True) as folder:
            self._sweep(folder)
            name = uuid.uuid4().hex
            try:
                with write_new(folder, name, content.blocks()):
                    yield folder, name
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def _sweep(self, folder: int) -> None:
        """Now and then, remove what crashed processes left."""
        if time.monotonic() - self._swept_at < SWEEP_EVERY_S:
            return
        self._swept_at = time.monotonic()
        for name in names_in(folder):
            with suppress(FileNotFoundError):
                if is_abandoned(folder, name):
                    os.unlink(name, dir_fd=folder)

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        with self._folders.enter(_LOCKS, create=True) as folder:
            name = _hash(key)[:2]
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(name, flags, 0o666, dir_fd=folder)
        try:
            lock_file(lock)
            yield
        finally:
            os.close(lock)

    def _open(self, key: str) -> int:
        *parts, name = key.split("/")
        try:
            with self._folders.enter(parts) as folder:
                return open_file(folder, name)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectNotFound(f"there is no object {key}") from None

    def _is_current(self, key: str, file: int) -> bool:
        *parts, name = key.split("/")
        with suppress(FileNotFoundError, NotADirectoryError):
            with self._folders.enter(parts) as folder:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return os.path.samestat(found, os.fstat(file))
        return False

    def _checksums(self, key: str) -> list[StoredFile]:
        """Return the contents that the key may hold: one, or several after a crash."""
        found: list[StoredFile] = []
        with suppress(FileNotFoundError), self._folders.enter(_sums(key)) as folder:
            for name in names_in(folder):
                # A writer may just have removed that of the content before.
                with suppress(FileNotFoundError):
                    found.append(_read_checksum(key, folder, name))
        return found

    def _remember(self, key: str, content: Content, content_type: str) -> None:
        record = {"key": key, "size": content.size, "content_type": content_type}
        text = json.dumps(record).encode()
        with (
            self._folders.enter(_TEMPORARY, create=True) as temporary,
            self._folders.enter(_sums(key), create=True) as folder,
        ):
            name = uuid.uuid4().hex
            with write_new(temporary, name, iter((text,))):
                os.replace(name, content.sha256, src_dir_fd=temporary, dst_dir_fd=folder)
            os.fsync(folder)

    def _forget(self, key: str, keep: str) -> None:
        """Remove the checksums of contents that the key no longer holds."""
        with suppress(FileNotFoundError), self._folders.enter(_sums(key)) as folder:
            for name in names_in(folder):
                if name != keep:
                    os.unlink(name, dir_fd=folder)
        if not keep:
            self._folders.prune(_sums(key))

    def _walk(self, parts: list[str]) -> Iterator[ListedFile]:
        with self._folders.enter(parts) as folder:
            entries = sorted(_entries(folder))
        for name in entries:
            if name.endswith("/"):
                if parts or name != f"{RESERVED}/":
                    with suppress(FileNotFoundError):
                        yield from self._walk([*parts, name[:-1]])
                continue
            with suppress(FileNotFoundError), self._folders.enter(parts) as folder:
                yield _list_file("/".join([*parts, name]), folder, name)


class _FileReader:
    """See `backend.ObjectReader`: an open file stays what it was, also when the key gets other content."""

    def __init__(self, root: Path, file: int, info: StoredFile) -> None:
        self._root = root
        self._file = file
        self.info = info

    def read_at(self, start: int, length: int) -> bytes:
        with disk_errors(self._root):
            return os.pread(self._file, length, start)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _blocks(reader: ObjectReader) -> Generator[bytes, None, None]:
    with closing(reader):
        position = 0
        while block := reader.read_at(position, BLOCK):
            position += len(block)
            yield block


def _identify(key: str, file: int, kept: list[StoredFile]) -> StoredFile:
    """Return the record whose checksum fits the file; with several of its size the content decides."""
    size = os.fstat(file).st_size
    if not kept:
        return StoredFile(key, size, "", guess_type(key))
    fitting = [each for each in kept if each.size == size]
    if len(fitting) > 1:
        with os.fdopen(os.dup(file), "rb") as copy:
            found = hashlib.file_digest(copy, "sha256").hexdigest()
        fitting = [each for each in fitting if each.sha256 == found]
    if not fitting:
        raise ObjectCorrupted(f"{key} has {size} bytes, which is not what was stored")
    return fitting[0]


def _read_checksum(key: str, folder: int, name: str) -> StoredFile:
    with os.fdopen(open_file(folder, name), "rb") as file:
        record = json.loads(file.read())
    return StoredFile(key, int(record["size"]), name, str(record["content_type"]))


def _list_file(key: str, folder: int, name: str) -> ListedFile:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return ListedFile(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _entries(folder: int) -> Iterator[str]:
    """Yield regular files, and folders with a slash, so that sorting them sorts whole keys."""
    with os.scandir(folder) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                yield f"{each.name}/"
            elif each.is_file(follow_symlinks=False):
                yield each.name


def _sums(key: str) -> tuple[str, ...]:
    name = _hash(key)
    return (RESERVED, "sums", name[:2], name[2:])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
