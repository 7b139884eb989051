"""The client of service calls: a cycle calls an API with a token, and a key that is the same for every retry."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit

import msgspec

from holdfast.core.codec import TypeCodec
from holdfast.core.errors import ConfigError, HoldfastError
from holdfast.core.redaction import clean_error, clean_text
from holdfast.settings import Settings, load_settings
from holdfast_calls.errors import CallAlreadyDone, ServiceCallFailed
from holdfast_calls.settings import CallSettings

TOKEN_HEADER = "x-service-token"
KEY_HEADER = "idempotency-key"
TIMEOUT_S = 30.0
MAX_RESPONSE = 1 << 20

_CHUNK = 1 << 16
_MAX_REASON = 500
_ANYTHING = TypeCodec(Any)

T = TypeVar("T")


class ServiceClient:
    """Calls one API. There is no call without a token, and redirects are not followed: the token would go along."""

    def __init__(self, base_url: str, token: str, timeout_s: float = TIMEOUT_S) -> None:
        """Take the API's address, its token, and how long a call may take in total.

        Raises: ConfigError for a URL without a host, an empty token, or no time.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the base URL of service calls is not an http:// or https:// URL")
        if not token:
            raise ConfigError("service calls need a token", help="set WORKER_API_SERVICE_TOKEN")
        if not timeout_s > 0:
            raise ConfigError("service calls need a timeout above 0", help="30 seconds is typical")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s

    @classmethod
    def of(cls, settings: Settings | None = None, timeout_s: float = TIMEOUT_S) -> ServiceClient:
        """Make the client that the settings describe, by default those of this process.

        Raises: ConfigError when URL or token is unset.
        """
        own: CallSettings = (settings or load_settings()).others[CallSettings]
        if own.base_url is None:
            raise ConfigError("service calls need a base URL", help="set WORKER_API_BASE_URL")
        return cls(own.base_url, own.service_token or "", timeout_s)

    @overload
    async def call(self, path: str, *, key: str, body: Any = None, method: str = "POST") -> Any: ...
    @overload
    async def call(
        self, path: str, *, key: str, returns: type[T], body: Any = None, method: str = "POST"
    ) -> T | None: ...
    async def call(
        self, path: str, *, key: str, returns: Any = Any, body: Any = None, method: str = "POST"
    ) -> Any:
        """Send a request and return the decoded response; `key` should be `run.key`.

        returns: the type of the response. None means that the API's guard knows the key: an earlier try did the
        work, and its response got lost.

        Raises: ServiceCallFailed for no response, one without success, or one of another type.
        """
        return await asyncio.to_thread(
            self.call_sync, path, key=key, returns=returns, body=body, method=method
        )

    @overload
    def call_sync(self, path: str, *, key: str, body: Any = None, method: str = "POST") -> Any: ...
    @overload
    def call_sync(
        self, path: str, *, key: str, returns: type[T], body: Any = None, method: str = "POST"
    ) -> T | None: ...
    def call_sync(
        self, path: str, *, key: str, returns: Any = Any, body: Any = None, method: str = "POST"
    ) -> Any:
        """Sync version of `call`."""
        what = f"{method} {path}"
        if not key:
            raise ServiceCallFailed(f"{what} has no key", help="pass key=run.key")
        content = None if body is None else _ANYTHING.encode(body).encode()
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        try:
            response, text = self._exchange(connection, method, path, key, content)
        except TimeoutError as error:
            message = f"{what} got no response within {self._timeout_s:g} s"
            raise ServiceCallFailed(message) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = clean_error(type(error).__name__, str(error))
            raise ServiceCallFailed(f"{what} got no response: {reason}") from error
        finally:
            connection.close()
        if not 200 <= response.status < 300:
            return _judge(what, response, text)
        return _decode(what, text, returns)

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, key: str, content: bytes | None
    ) -> tuple[HTTPResponse, bytes]:
        """Send the request and read the response, within the time of the whole call."""
        deadline = time.monotonic() + self._timeout_s
        headers = {TOKEN_HEADER: self._token, KEY_HEADER: key, "accept": "application/json"}
        if content is not None:
            headers["content-type"] = "application/json"
        connection.request(method, f"{self._path}/{path.lstrip('/')}", content, headers)
        reader: Any = _ReadUntil(deadline, connection.sock)
        text = b""
        with closing(HTTPResponse(reader, method=method)) as response:
            response.begin()
            while chunk := response.read1(_CHUNK):
                text += chunk
                if len(text) > MAX_RESPONSE:
                    raise HTTPException(f"the response is larger than {MAX_RESPONSE} bytes")
        return response, text


class _ReadUntil(RawIOBase):
    """Reads a socket until a deadline: the socket's own timeout begins anew with every byte that drips in."""

    def __init__(self, deadline: float, sock: socket) -> None:
        self._deadline = deadline
        self._sock = sock

    def makefile(self, mode: str) -> BufferedReader:
        """Return what a response reads from, as a socket does."""
        return BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


def _judge(what: str, response: HTTPResponse, text: bytes) -> None:
    """Return for work that is done already; raise for everything else. Raises: ServiceCallFailed."""
    status = response.status
    if 300 <= status < 400:
        target = clean_text(response.headers.get("location") or "nowhere", _MAX_REASON)
        raise ServiceCallFailed(
            f"{what} got status {status}: it was redirected to {target}",
            status=status,
            help="set WORKER_API_BASE_URL to the final address; redirects are not followed",
        )
    problem = _problem_of(text)
    if status == CallAlreadyDone.http_status and problem.code == CallAlreadyDone.code:
        return
    raise ServiceCallFailed(
        f"{what} got status {status}{f': {problem.text}' if problem.text else ''}",
        status=status,
        problem_code=problem.code,
        help=problem.help or _HELP.get(status),
    )


_HELP = {
    401: "set the same WORKER_API_SERVICE_TOKEN for the worker and for the API",
    403: "set the same WORKER_API_SERVICE_TOKEN for the worker and for the API",
    404: "check WORKER_API_BASE_URL and the path of the call",
}


class ResponseProblem(msgspec.Struct, frozen=True):
    """What a response without success says of the reason."""

    text: str = ""
    code: str | None = None
    help: str | None = None


def _problem_of(text: bytes) -> ResponseProblem:
    """Read a problem document (RFC 9457), also where FastAPI put one into `detail`; otherwise the text as it is."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return ResponseProblem(_words(text.decode(errors="replace")))
    if isinstance(found, dict) and isinstance(found.get("detail"), dict):
        found = found["detail"]
    if not isinstance(found, dict):
        return ResponseProblem(_words(found))
    said = next((found[name] for name in ("detail", "title", "error") if found.get(name)), "")
    code, help = found.get("code"), found.get("help")
    return ResponseProblem(
        _words(f"[{code}] {said}" if isinstance(code, str) else said),
        code if isinstance(code, str) else None,
        _words(help) if isinstance(help, str) else None,
    )


def _words(said: object) -> str:
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return " ".join(clean_text(text, _MAX_REASON).split())


def _decode(what: str, text: bytes, returns: Any) -> Any:
    if not text.strip() and returns is Any:
        return None
    try:
        return TypeCodec(returns, "output").decode(text)
    except HoldfastError as error:
        reason = "is not JSON" if returns is Any else f"does not fit: {error.message}"
        raise ServiceCallFailed(f"{what} got a response that {reason}") from error
