"""Costs for HTTP, pages and the command line."""

from __future__ import annotations

from typing import Any

from holdfast.admin.access import Caller, NounAdmin
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store import Store
from holdfast_costs.usage import CostUsage, check_counts, read_usage


class CostAdmin(NounAdmin):
    """What can be asked about costs."""

    async def of_type(self, caller: Caller, type: str) -> list[CostUsage]:
        """Read what limits of a type that count costs use; nothing if it has none."""
        return await self._gateway.read(caller, "cost.list", lambda store: read_usage(store, type))

    async def list(self, caller: Caller, type: str | None = None) -> list[CostUsage]:
        """Read what limits that count costs use, the fullest first. Raises: UnknownJobType."""

        def read(store: Store) -> Op[list[CostUsage]]:
            if type is not None:
                yield from check_counts(store, type)
            return (yield from read_usage(store, type))

        return await self._gateway.read(caller, "cost.list", read)

    async def of_job(self, caller: Caller, id: str) -> tuple[int, int | None]:
        """Read what a job was to cost, and what its attempt under way said it spent."""

        def read(_: Store) -> Op[tuple[int, int | None]]:
            rows = yield Statement("cost_of_job", {"id": id})
            return (rows[0][0], rows[0][2]) if rows else (1, None)

        return await self._gateway.read(caller, "cost.list", read)


def usage_json(usage: CostUsage) -> dict[str, Any]:
    """Return what a limit uses, for programs."""
    return {
        "type": usage.type,
        "key": usage.key,
        "used": usage.used,
        "max": usage.max,
        "per": usage.per,
        "left": usage.left,
    }
