"""An ASGI application that serves signed links to a local directory; mount it where `base_url` points."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl

from holdfast.core.errors import (
    HoldfastError,
    InvalidObjectKey,
    LinkInvalid,
    ObjectNotFound,
    SigningSecretMissing,
)
from holdfast.files.links import attachment

if TYPE_CHECKING:
    from holdfast.files.files import Files

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STATUSES: dict[type[HoldfastError], int] = {
    LinkInvalid: 403,
    SigningSecretMissing: 403,
    ObjectNotFound: 404,
    InvalidObjectKey: 404,
}


class Downloads:
    """Answers GET and HEAD for valid links only; nothing is served without a signature."""

    def __init__(self, files: Files) -> None:
        self._files = files

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
        filename = self._files.check_link(key, dict(parse_qsl(scope["query_string"].decode())))
        info = await self._files.aio.head(key)
        headers = {
            "content-type": info.content_type,
            "content-length": str(info.size),
            "content-disposition": attachment(filename),
            "cache-control": "private, no-store",
            # What users uploaded must not run as a page of the application.
            "content-security-policy": "sandbox; default-src 'none'",
            "x-content-type-options": "nosniff",
        }
        await _start(send, 200, headers)
        if scope["method"] == "GET":
            # Against the checksum that was announced: an object that is replaced meanwhile breaks off.
            async with aclosing(self._files.aio.stream(key, sha256=info.sha256)) as blocks:
                async for block in blocks:
                    await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
    await _start(send, status, headers)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
