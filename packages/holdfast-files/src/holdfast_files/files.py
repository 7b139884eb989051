"""Files: objects under keys, the same in a local directory and in an S3-compatible store."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, closing, suppress
from typing import IO, TYPE_CHECKING, TypeVar

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption
from holdfast_files.backend import FileBackend, ListedFile, ObjectReader, StoredFile, guess_type
from holdfast_files.content import BLOCK, Collector, Data, content_of
from holdfast_files.errors import ObjectCorrupted, ObjectExists, ObjectNotFound
from holdfast_files.keys import check_key, check_prefix
from holdfast_files.links import LinkSigner

if TYPE_CHECKING:
    from holdfast_files.downloads import Downloads

T = TypeVar("T")

DEFAULT_EXPIRES = "10m"
MAX_EXPIRES_S = 7 * 86_400
"""S3 signs nothing for longer."""

_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)
_END = object()


class Files:
    """A store of objects; `aio` is its async version. Threads may share it. Creating one opens no connection."""

    def __init__(
        self, backend: FileBackend, links: LinkSigner, clock: Callable[[], float] = time.time
    ) -> None:
        """Use `open_files` instead."""
        self._backend = backend
        self._links = links
        self._clock = clock
        self.aio = AsyncFiles(self)

    def put(self, key: str, data: Data, content_type: str | None = None) -> StoredFile:
        """Store an object, replacing what the key holds; readers see the old one or the new one, never a part.

        The media type is guessed from the key unless you give one. Raises: FilesError, InvalidOption.
        """
        check_key(key)
        media = _media_type(key, content_type)
        with content_of(data) as content:
            self._backend.write(key, content, media)
            return StoredFile(key, content.size, content.sha256, media)

    def put_once(self, key: str, data: Data, content_type: str | None = None) -> StoredFile:
        """Store an object unless the key already holds it, then read it back and compare.

        Storing the same content again returns the existing object; other content raises ObjectExists. Where the store
        ignores conditional writes (Ceph), or for more than 8 MiB in any S3 store, two writers that store *different*
        contents under a new key at the same moment may both succeed, and the later content stays: use keys that
        determine their content. Raises: FilesError, InvalidOption.
        """
        check_key(key)
        media = _media_type(key, content_type)
        with content_of(data) as content:
            if not self.exists(key):
                self._backend.create(key, content, media)
            return self._same(key, content.sha256)

    def get(self, key: str, *, sha256: str | None = None) -> bytes:
        """Return the content, compared with the checksum kept with it, or with one you give.

        Raises: ObjectNotFound, ObjectCorrupted, FilesError.
        """
        return b"".join(self.stream(key, sha256=sha256))

    def stream(self, key: str, *, sha256: str | None = None) -> Generator[bytes, None, None]:
        """Return the content in blocks of about 1 MiB; the last one comes only if the checksum is right.

        Raises: ObjectNotFound, ObjectCorrupted, FilesError.
        """
        info, blocks = self._backend.stream(check_key(key))
        return _verify_blocks(key, blocks, info.sha256 if sha256 is None else sha256.lower())

    def open(self, key: str) -> IO[bytes]:
        """Return a seekable binary file that reads what is needed; parts are not compared with the checksum.

        It reads the version it opened, or fails. Raises: ObjectNotFound, FilesError.
        """
        return io.BufferedReader(_ReaderFile(self._backend.reader(check_key(key))), BLOCK)

    def verify(self, key: str, *, sha256: str | None = None) -> StoredFile:
        """Read the whole object and return what it is. Raises: ObjectNotFound, ObjectCorrupted, FilesError."""
        info, blocks = self._backend.stream(check_key(key))
        digest = hashlib.sha256()
        with closing(blocks):
            for block in blocks:
                digest.update(block)
        found = digest.hexdigest()
        _compare(key, found, info.sha256 if sha256 is None else sha256.lower())
        return StoredFile(key, info.size, found, info.content_type)

    def head(self, key: str) -> StoredFile:
        """Return what the key holds, without its content. Raises: ObjectNotFound, FilesError."""
        return self._backend.head(check_key(key))

    def exists(self, key: str) -> bool:
        """Return whether the key holds an object. Raises: FilesError."""
        try:
            self.head(key)
        except ObjectNotFound:
            return False
        return True

    def delete(self, key: str) -> None:
        """Remove an object; it is not an error if the key holds none. Raises: FilesError."""
        self._backend.delete(check_key(key))

    def list(self, prefix: str = "") -> Iterator[ListedFile]:
        """Yield the objects in a folder and below, in the order of their keys. Raises: FilesError."""
        return self._backend.entries(check_prefix(prefix))

    def url(
        self, key: str, expires: Duration = DEFAULT_EXPIRES, filename: str | None = None
    ) -> str:
        """Return a link that downloads the object, valid for at most 7 days.

        Browsers save it as `filename`, or as the last part of the key. Raises: SigningSecretMissing, FilesError,
        InvalidOption.
        """
        check_key(key)
        seconds = -(-milliseconds(expires) // 1000)
        if not 1 <= seconds <= MAX_EXPIRES_S:
            raise InvalidOption("a download link is valid for 1 second to 7 days")
        return self._backend.url(key, seconds, filename, self._clock())

    def check_link(self, key: str, query: Mapping[str, str]) -> str:
        """Return the file name of a link that `url` made for a local directory, given its key and its query.

        Raises: LinkInvalid, SigningSecretMissing.
        """
        return self._links.check(key, query, self._clock())

    def downloads(self) -> Downloads:
        """Return the ASGI application that serves the links of a local directory; mount it at `base_url`."""
        from holdfast_files.downloads import Downloads

        return Downloads(self, self._backend)

    def _same(self, key: str, sha256: str) -> StoredFile:
        info = self.head(key)
        # A checksum that differs needs no look at the content.
        if not info.sha256 or info.sha256 == sha256:
            info = self.verify(key)
        if info.sha256 != sha256:
            raise ObjectExists(f"{key} already holds other content")
        return info


class AsyncFiles:
    """`Files` for async code: each call runs in a thread, so that the loop never waits for a disk or a server.

    A cancelled write may still be completed in its thread, as a whole.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    async def put(
        self, key: str, data: Data | AsyncIterable[bytes], content_type: str | None = None
    ) -> StoredFile:
        """See `Files.put`; the data may also be an async iterable of bytes."""
        return await _store(self._files.put, key, data, content_type)

    async def put_once(
        self, key: str, data: Data | AsyncIterable[bytes], content_type: str | None = None
    ) -> StoredFile:
        """See `Files.put_once`; the data may also be an async iterable of bytes."""
        return await _store(self._files.put_once, key, data, content_type)

    async def get(self, key: str, *, sha256: str | None = None) -> bytes:
        """See `Files.get`."""
        return await asyncio.to_thread(self._files.get, key, sha256=sha256)

    async def stream(self, key: str, *, sha256: str | None = None) -> AsyncGenerator[bytes, None]:
        """See `Files.stream`."""
        blocks = await asyncio.to_thread(self._files.stream, key, sha256=sha256)
        async with aclosing(_in_threads(blocks)) as steps:
            async for block in steps:
                yield block

    async def verify(self, key: str, *, sha256: str | None = None) -> StoredFile:
        """See `Files.verify`."""
        return await asyncio.to_thread(self._files.verify, key, sha256=sha256)

    async def head(self, key: str) -> StoredFile:
        """See `Files.head`."""
        return await asyncio.to_thread(self._files.head, key)

    async def exists(self, key: str) -> bool:
        """See `Files.exists`."""
        return await asyncio.to_thread(self._files.exists, key)

    async def delete(self, key: str) -> None:
        """See `Files.delete`."""
        await asyncio.to_thread(self._files.delete, key)

    async def list(self, prefix: str = "") -> AsyncGenerator[ListedFile, None]:
        """See `Files.list`."""
        async with aclosing(_in_threads(self._files.list(prefix))) as steps:
            async for each in steps:
                yield each

    async def url(
        self, key: str, expires: Duration = DEFAULT_EXPIRES, filename: str | None = None
    ) -> str:
        """See `Files.url`."""
        return await asyncio.to_thread(self._files.url, key, expires, filename)


async def _store(
    put: Callable[[str, Data, str | None], StoredFile],
    key: str,
    data: Data | AsyncIterable[bytes],
    content_type: str | None,
) -> StoredFile:
    if not isinstance(data, AsyncIterable):
        return await asyncio.to_thread(put, key, data, content_type)
    with Collector() as collector:
        async for block in data:
            await asyncio.to_thread(collector.add, block)
        return await asyncio.to_thread(put, key, collector, content_type)


async def _in_threads(items: Iterator[T]) -> AsyncGenerator[T, None]:
    step: asyncio.Task[T | object] | None = None
    try:
        while True:
            step = asyncio.create_task(asyncio.to_thread(next, items, _END))
            item = await asyncio.shield(step)
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        if step is not None and not step.done():
            # A generator cannot be closed while a thread is inside it.
            await asyncio.wait({step})
        with suppress(AttributeError):
            items.close()  # type: ignore[attr-defined]


class _ReaderFile(io.RawIOBase):
    """A reader as Python's own kind of file."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.info.size}
        position = starts[whence] + offset
        if position < 0:
            raise ValueError("the position is before the start of the file")
        self._position = position
        return position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = self._reader.read_at(self._position, len(buffer))
        buffer[: len(block)] = block
        self._position += len(block)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()


def _verify_blocks(
    key: str, blocks: Generator[bytes, None, None], expected: str
) -> Generator[bytes, None, None]:
    digest, held = hashlib.sha256(), b""
    with closing(blocks):
        for block in blocks:
            digest.update(block)
            if held:
                yield held
            held = block
    _compare(key, digest.hexdigest(), expected)
    if held:
        yield held


def _compare(key: str, found: str, expected: str) -> None:
    if expected and found != expected:
        raise ObjectCorrupted(f"{key} has the SHA-256 {found[:12]}…, expected {expected[:12]}…")


def _media_type(key: str, given: str | None) -> str:
    if given is None:
        return guess_type(key)
    if not _TYPE.fullmatch(given):
        raise InvalidOption(
            f"{repr(given)[:60]} is not a media type", help="use one like image/png"
        )
    return given
