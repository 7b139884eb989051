"""How sources are asked over HTTP: in a bounded time, for a bounded answer, and with one kind of error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

from tenders.sources.found import SourceFailed

AT_A_TIME = 4
"""Requests to one source at the same time; more would be impolite."""

MAX_ANSWER_BYTES = 10_000_000


class Fetcher:
    """Asks one source; its answers may be slow, endless or missing, and that is its problem alone."""

    def __init__(self, client: httpx.AsyncClient, timeout_s: float) -> None:
        """Use a client, and give each answer a time in which it must be complete."""
        self._client = client
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(AT_A_TIME)

    async def get(self, url: str, params: Mapping[str, str]) -> bytes:
        """Return the body of a successful answer. Raises: SourceFailed."""
        async with self._places:
            try:
                # The client's own timeouts start over with every byte.
                async with asyncio.timeout(self._timeout_s):
                    return await self._read(url, params)
            except TimeoutError as error:
                raise SourceFailed(f"no answer within {self._timeout_s:g} s") from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise SourceFailed(f"{type(error).__name__}: {error}") from error

    async def _read(self, url: str, params: Mapping[str, str]) -> bytes:
        body = bytearray()
        async with self._client.stream("GET", url, params=dict(params)) as answer:
            if answer.status_code != httpx.codes.OK:
                raise SourceFailed(f"HTTP {answer.status_code}")
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise SourceFailed(f"more than {MAX_ANSWER_BYTES:,} bytes")
        return bytes(body)
