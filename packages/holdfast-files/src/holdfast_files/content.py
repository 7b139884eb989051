"""What is to be stored, whatever form it comes in: its size, its SHA-256, and its bytes as often as needed."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import IO, Self, TypeAlias, cast

from holdfast.core.errors import InvalidOption
from holdfast_files.errors import ObjectCorrupted

Data: TypeAlias = bytes | bytearray | memoryview | Path | IO[bytes] | Iterable[bytes]
"""Content to store: bytes, a file by its Path, an open binary file, or an iterable of bytes."""

BLOCK = 1024 * 1024
IN_MEMORY = 8 * BLOCK
"""A stream larger than this is collected on disk: its checksum has to be known before it is stored."""


class Content:
    """Bytes to store; reading them again gives the same bytes or fails."""

    def __init__(self, file: IO[bytes]) -> None:
        """Measure a seekable file from its beginning."""
        self._file = file
        file.seek(0)
        self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        self.size = file.seek(0, SEEK_END)

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks; raises ObjectCorrupted at the end if it has changed."""
        digest = hashlib.sha256()
        self._file.seek(0)
        while block := self._file.read(BLOCK):
            digest.update(block)
            yield block
        if digest.hexdigest() != self.sha256:
            raise ObjectCorrupted("the file changed while it was being stored", help="try again")

    def read_all(self) -> bytes:
        """Return all of it."""
        return b"".join(self.blocks())


class Collector:
    """Collects a stream block by block, in memory while it is small and then on disk."""

    def __init__(self) -> None:
        # The stub of this class lacks what IO[bytes] promises, which the class itself has.
        file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  closed by __exit__
        self.file = cast(IO[bytes], file)

    def add(self, block: object) -> None:
        """Append a block. Raises: InvalidOption."""
        if not isinstance(block, (bytes, bytearray, memoryview)):
            raise InvalidOption(f"a stream of {type(block).__name__} cannot be stored: yield bytes")
        self.file.write(block)

    def __iter__(self) -> Iterator[bytes]:
        """Yield what was collected."""
        return Content(self.file).blocks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


@contextmanager
def content_of(data: Data) -> Iterator[Content]:
    """Open the content, collecting streams first. Raises: InvalidOption."""
    with _seekable(data) as file:
        yield Content(file)


@contextmanager
def _seekable(data: Data) -> Iterator[IO[bytes]]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        yield BytesIO(data)
    elif isinstance(data, Path):
        with data.open("rb") as file:
            yield file
    elif isinstance(data, Collector):
        yield data.file
    else:
        with Collector() as collector:
            for block in _stream(data):
                collector.add(block)
            yield collector.file


def _stream(data: object) -> Iterator[object]:
    if hasattr(data, "read"):
        # The end of a file opened as text is no bytes either, and refused even if nothing came before it.
        while (block := data.read(BLOCK)) or not isinstance(block, bytes):
            yield block
    elif isinstance(data, Iterable) and not isinstance(data, str):
        yield from data
    else:
        raise InvalidOption(
            f"{type(data).__name__} cannot be stored",
            help="pass bytes, a Path, a file opened in binary mode, or an iterable of bytes",
        )
