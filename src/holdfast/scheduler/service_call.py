"""Service calls: how a cycle calls an API, with a token and an idempotency key that is the same for every retry."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.core.errors import ConfigError, ServiceCallFailed
from holdfast.core.redaction import clean_error
from holdfast.settings import Settings

TOKEN_HEADER = "x-service-token"
KEY_HEADER = "idempotency-key"
TIMEOUT_S = 30.0
MAX_RESPONSE = 1 << 20


class ServiceClient:
    """Calls one API. There is no call without a token."""

    def __init__(self, base_url: str, token: str, timeout_s: float = TIMEOUT_S) -> None:
        """Raises: ConfigError for a URL without a host, or an empty token."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the base URL of service calls is not an http:// or https:// URL")
        if not token:
            raise ConfigError("service calls need a token", help="set WORKER_API_SERVICE_TOKEN")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s

    @classmethod
    def of(cls, settings: Settings) -> ServiceClient:
        """Make the client that the settings describe. Raises: ConfigError when URL or token is unset."""
        own = settings.worker
        if own.api_base_url is None:
            raise ConfigError("service calls need a base URL", help="set WORKER_API_BASE_URL")
        return cls(own.api_base_url, own.api_service_token or "")

    async def call(self, path: str, *, key: str, body: Any = None, method: str = "POST") -> Any:
        """Send a request and return the decoded response; `key` should be `run.key`.

        Raises: ServiceCallFailed for no response, or one without success.
        """
        return await asyncio.to_thread(self.call_sync, path, key=key, body=body, method=method)

    def call_sync(self, path: str, *, key: str, body: Any = None, method: str = "POST") -> Any:
        """Sync version of `call`."""
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        what = f"{method} {path}"
        try:
            connection.request(
                method,
                f"{self._path}/{path.lstrip('/')}",
                body=None if body is None else msgspec.json.encode(body),
                headers=self._headers(key, body),
            )
            response = connection.getresponse()
            text = response.read(MAX_RESPONSE)
        except (OSError, HTTPException, ValueError) as error:
            reason = clean_error(type(error).__name__, str(error))
            raise ServiceCallFailed(f"{what} got no response: {reason}") from error
        finally:
            connection.close()
        if not 200 <= response.status < 300:
            raise ServiceCallFailed(f"{what} got status {response.status}")
        return _decode(what, text)

    def _headers(self, key: str, body: Any) -> dict[str, str]:
        headers = {TOKEN_HEADER: self._token, KEY_HEADER: key, "accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        return headers


def _decode(what: str, text: bytes) -> Any:
    if not text.strip():
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ServiceCallFailed(f"{what} got a response that is not JSON") from error
