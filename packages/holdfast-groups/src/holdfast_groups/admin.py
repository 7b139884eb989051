"""Groups for HTTP, pages and the command line."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast_groups.progress import GroupProgress, cancel_group, read_progress


def progress_json(group: str, progress: GroupProgress) -> dict[str, Any]:
    """Return how far a group is, for programs."""
    fields = msgspec.structs.asdict(progress)
    return {"id": group, **fields, "ended": progress.ended, "fraction": progress.fraction}


class GroupAdmin(NounAdmin):
    """What can be asked about groups and done with them."""

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
