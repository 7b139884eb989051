"""Groups for HTTP, pages and the command line."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain
from holdfast_groups.progress import (
    GroupProgress,
    GroupSummary,
    cancel_group,
    read_groups,
    read_progress,
)


def progress_json(group: str, progress: GroupProgress) -> dict[str, Any]:
    """Return how far a group is, for programs."""
    fields = msgspec.structs.asdict(progress)
    return {"id": group, **fields, "ended": progress.ended, "fraction": progress.fraction}


def summary_json(group: GroupSummary) -> dict[str, Any]:
    """Return a group of a list, for programs; its counts are lower bounds unless all were counted."""
    return {**plain(group), "counted": group.is_counted}


class GroupAdmin(NounAdmin):
    """What can be asked about groups and done with them."""

    async def list(
        self, caller: Caller, limit: int = 50, before: str | None = None
    ) -> list[GroupSummary]:
        """Read the newest groups, or those before one of them."""
        return await self._gateway.read(caller, "group.list", lambda _: read_groups(limit, before))

    async def get(self, caller: Caller, group: str) -> GroupProgress:
        """Read how far a group is. Raises: ChainNotFound."""
        return await self._gateway.read(
            caller, "group.list", lambda store: read_progress(store, group)
        )

    async def cancel(self, caller: Caller, group: str) -> int:
        """Cancel what has not ended of a group, and what follows it. Raises: ChainNotFound."""
        return await self._gateway.run(
            caller, "group.cancel", lambda store: cancel_group(store, group, caller.reason or "")
        )
