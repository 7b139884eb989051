"""Bounds on what a caller may send and how often."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request

from holdfast.core.errors import BadRequest, BodyTooLarge, RateLimited

BODY_LIMIT = 1_048_576
BODY_WITHIN_S = 30.0


class Rate:
    """A bucket of permits that fills again with time; the first few may come at once."""

    def __init__(
        self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._left = self._burst
        self._at = clock()

    def take(self) -> None:
        """Use one permit. Raises: RateLimited."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            after_s = math.ceil((1 - self._left) / self._per_second)
            raise RateLimited("this was asked for too often", after_s)
        self._left -= 1


async def read_body(
    request: Request, limit: int = BODY_LIMIT, within_s: float = BODY_WITHIN_S
) -> bytes:
    """Read a body of bounded size, from a client that sends it in time. Raises: BodyTooLarge, BadRequest."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(f"the body has {announced} bytes, the limit is {limit}")
    try:
        async with asyncio.timeout(within_s):
            return await _read_parts(request, limit)
    except TimeoutError:
        raise BadRequest(f"the body did not come within {within_s:g} s") from None
    except ClientDisconnect:
        raise BadRequest("the client went before its body had come") from None


async def _read_parts(request: Request, limit: int) -> bytes:
    parts = bytearray()
    async for chunk in request.stream():
        parts += chunk
        if len(parts) > limit:
            raise BodyTooLarge(f"the body has more than {limit} bytes")
    return bytes(parts)
