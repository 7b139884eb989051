"""Reads that only pages make: the job whose id was typed in part, and how fast types are worked off."""

from __future__ import annotations

from holdfast.admin.access import Caller, NounAdmin
from holdfast.core.errors import InvalidId
from holdfast.core.ids import digits_of_part, parse_id
from holdfast.core.statistics import TypePace
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

PACE_MS = 300_000
"""Rates cover the last five minutes: long enough to be steady, short enough to be current."""


class PageReads(NounAdmin):
    """What pages ask besides what every surface does."""

    async def find(self, caller: Caller, text: str) -> str | None:
        """Return the job that has this id, or the only one whose id begins or ends so."""
        return await self._gateway.read(caller, "job.get", lambda store: _find_id(store, text))

    async def paces(self, caller: Caller) -> dict[str, TypePace]:
        """Read how much of each type ended within the last minutes, and how many run."""
        found = await self._gateway.read(
            caller, "type.list", lambda store: store.statistics.types(PACE_MS)
        )
        return {each.type: each for each in found}


def _find_id(store: Store, text: str) -> Op[str | None]:
    digits = digits_of_part(text)
    if digits is not None:
        ids = yield from store.jobs.ids_like(digits, 2)
        return ids[0] if len(ids) == 1 else None
    try:
        wanted = str(parse_id(text))
    except InvalidId:
        return None
    return wanted if (yield from store.jobs.get([wanted])) else None
