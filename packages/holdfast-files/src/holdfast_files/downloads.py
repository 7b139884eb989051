"""An ASGI application that serves signed links to a local directory; mount it where `base_url` points."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl

from holdfast.core.errors import HoldfastError
from holdfast_files.backend import FileBackend, ObjectReader, StoredFile
from holdfast_files.content import BLOCK
from holdfast_files.errors import (
    InvalidObjectKey,
    LinkInvalid,
    ObjectNotFound,
    SigningSecretMissing,
)
from holdfast_files.links import attachment

if TYPE_CHECKING:
    from holdfast_files.files import Files

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STATUSES: dict[type[HoldfastError], int] = {
    LinkInvalid: 403,
    SigningSecretMissing: 403,
    ObjectNotFound: 404,
    InvalidObjectKey: 404,
}

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class Downloads:
    """Answers GET and HEAD for valid links only; nothing is served without a signature.

    One range of bytes is served alone, so that downloads resume and players seek; several are answered with the whole.
    """

    def __init__(self, files: Files, backend: FileBackend) -> None:
        self._files = files
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "method not allowed")
            return
        try:
            await self._serve(scope, send)
        except HoldfastError as error:
            status = _STATUSES.get(type(error))
            if status is None:
                raise
            await _refuse(send, status, error.message)

    async def _serve(self, scope: Scope, send: Send) -> None:
        key = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix("/")
        filename = self._files.check_link(
            key, dict(parse_qsl(scope["query_string"].decode("latin-1")))
        )
        wanted = dict(scope["headers"]).get(b"range", b"").decode("latin-1")
        if wanted and scope["method"] == "GET":
            reader = await asyncio.to_thread(self._backend.reader, key)
            try:
                if await _serve_range(scope, send, reader, wanted, filename):
                    return
            finally:
                await asyncio.to_thread(reader.close)
        info = await self._files.aio.head(key)
        await _start(send, 200, _headers(info, filename, info.size))
        if scope["method"] == "GET":
            # Against the checksum that was announced: an object that is replaced meanwhile breaks off.
            await _send_blocks(send, self._files.aio.stream(key, sha256=info.sha256))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _serve_range(
    scope: Scope, send: Send, reader: ObjectReader, wanted: str, filename: str
) -> bool:
    """Serve one range of the version that was opened; False when all of it is to be sent."""
    info = reader.info
    condition = dict(scope["headers"]).get(b"if-range", b"").decode("latin-1")
    found = _RANGE.fullmatch(wanted.replace(" ", ""))
    if found is None or found[0] == "bytes=-" or (condition and condition != _etag(info)):
        return False
    first, last = _bounds(found[1], found[2], info.size)
    if first > last:
        headers = {"content-range": f"bytes */{info.size}", "content-length": "0"}
        await _start(send, 416, headers)
    else:
        headers = _headers(info, filename, last - first + 1)
        headers["content-range"] = f"bytes {first}-{last}/{info.size}"
        await _start(send, 206, headers)
        await _send_blocks(send, _part(reader, first, last + 1))
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    return True


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Return the first and last byte of a range; the last n of `-n` (RFC 9110, 14.1.2)."""
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last) if last else size - 1, size - 1)


async def _part(reader: ObjectReader, start: int, end: int) -> AsyncGenerator[bytes, None]:
    while start < end:
        block = await asyncio.to_thread(reader.read_at, start, min(BLOCK, end - start))
        if not block:
            return
        start += len(block)
        yield block


async def _send_blocks(send: Send, content: AsyncGenerator[bytes, None]) -> None:
    async with aclosing(content) as blocks:
        async for block in blocks:
            await send({"type": "http.response.body", "body": block, "more_body": True})


def _headers(info: StoredFile, filename: str, length: int) -> dict[str, str]:
    headers = {
        "content-type": info.content_type,
        "content-length": str(length),
        "content-disposition": attachment(filename),
        "accept-ranges": "bytes",
        "cache-control": "private, no-store",
        # What users uploaded must not run as a page of the application.
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
    }
    return headers | ({"etag": _etag(info)} if info.sha256 else {})


def _etag(info: StoredFile) -> str:
    return f'"{info.sha256}"'


async def _refuse(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
    await _start(send, status, headers)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
