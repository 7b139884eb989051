"""What a store of objects must do, and the records it returns."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast_files.content import Content

DEFAULT_TYPE = "application/octet-stream"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An object: its key, its size in bytes, the SHA-256 of its content in hex, and its media type.

    The checksum is empty if something other than Holdfast stored the object.
    """

    key: str
    size: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True)
class ListedFile:
    """An object as a list shows it: its key, its size in bytes, and when it was stored."""

    key: str
    size: int
    modified_at: datetime


class ObjectReader(Protocol):
    """One version of an object, read in parts."""

    @property
    def info(self) -> StoredFile:
        """What is being read."""

    def read_at(self, start: int, length: int) -> bytes:
        """Return bytes from a position; fewer only at the end."""

    def close(self) -> None:
        """Let go of it."""


class FileBackend(Protocol):
    """A store of objects. Keys are valid, and each write becomes visible as a whole or not at all."""

    def write(self, key: str, content: Content, content_type: str) -> None:
        """Store an object, replacing what the key holds."""

    def create(self, key: str, content: Content, content_type: str) -> bool:
        """Store an object, or return False if the store says that the key holds one; not every store does."""

    def head(self, key: str) -> StoredFile:
        """Return what the key holds. Raises: ObjectNotFound."""

    def stream(self, key: str) -> tuple[StoredFile, Generator[bytes, None, None]]:
        """Return what the key holds and its content in blocks. Raises: ObjectNotFound."""

    def reader(self, key: str) -> ObjectReader:
        """Return a reader of what the key holds. Raises: ObjectNotFound."""

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""

    def entries(self, prefix: str) -> Iterator[ListedFile]:
        """Yield all objects in a folder and below, by key."""

    def url(self, key: str, expires_s: int, filename: str | None, now: float) -> str:
        """Return a signed link that downloads the object until it expires."""


def guess_type(key: str) -> str:
    """Return the media type of what a key names, by its ending."""
    return mimetypes.guess_type(key)[0] or DEFAULT_TYPE


def known_sha256(text: str | None) -> str:
    """Return a checksum as it was kept, or nothing if it is none."""
    return text if text and _SHA256.fullmatch(text) else ""
