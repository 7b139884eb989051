"""Bounds on what a caller may send and how often."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request

from holdfast.core.errors import BodyTooLarge, RateLimited

BODY_LIMIT = 1_048_576


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
            raise RateLimited("this was asked for too often")
        self._left -= 1


async def read_body(request: Request, limit: int = BODY_LIMIT) -> bytes:
    """Read a body of bounded size. Raises: BodyTooLarge."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(f"the body has {announced} bytes, the limit is {limit}")
    parts = bytearray()
    async for chunk in request.stream():
        parts += chunk
        if len(parts) > limit:
            raise BodyTooLarge(f"the body has more than {limit} bytes")
    return bytes(parts)
