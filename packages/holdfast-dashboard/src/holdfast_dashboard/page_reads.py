"""Reads that only pages make: the first page in one go, the job whose id was typed in part, the pace of types."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.admin.access import Caller, NounAdmin, check
from holdfast.admin.cycles import CycleFacts, cycle_facts
from holdfast.admin.jobs import dead_groups
from holdfast.admin.overview import Overview, Overviews
from holdfast.core.errors import InvalidId
from holdfast.core.ids import digits_of_part, parse_id
from holdfast.core.statistics import TypePace, Window
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

PACE_MS = 300_000
"""Rates cover the last five minutes: long enough to be steady, short enough to be current."""


MAX_GROUPS = 5
DEAD_LOOK = 200
"""Groups shown, and the newest dead letters they are made of."""


class OverviewPage(NamedTuple):
    """The overview with the largest groups of the newest dead letters, and the cycles."""

    overview: Overview
    dead: list[dict[str, Any]]
    cycles: list[CycleFacts]


class PageReads(NounAdmin):
    """What pages ask besides what every surface does."""

    async def board(
        self, caller: Caller, overviews: Overviews, window: Window = "1h"
    ) -> OverviewPage:
        """Read all that the first page shows in one go: it is drawn again with every change."""
        check(caller.principal, "dead.list")
        check(caller.principal, "cycle.list")

        def op(store: Store) -> Op[OverviewPage]:
            overview = yield from overviews.look(store, window, is_drawn_often=True)
            dead = yield from dead_groups(store, MAX_GROUPS, DEAD_LOOK)
            cycles = yield from cycle_facts(store, runs=0)
            return OverviewPage(overview, dead.items, cycles)

        return await self._gateway.read(caller, "overview.read", op)

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
