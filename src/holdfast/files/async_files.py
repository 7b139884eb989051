"""The async version of Files: each call runs in a thread, so that the loop never waits for a disk or a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast.core.duration import Duration
from holdfast.files.backend import ListedFile, StoredFile
from holdfast.files.content import Collector, Data

if TYPE_CHECKING:
    from holdfast.files.files import Files

T = TypeVar("T")

_END = object()


class AsyncFiles:
    """See `Files`; a cancelled write may still be completed in its thread, as a whole."""

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

    async def url(self, key: str, expires: Duration = "10m", filename: str | None = None) -> str:
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
