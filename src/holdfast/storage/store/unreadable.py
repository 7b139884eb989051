"""Jobs whose input the code could not read: they wait, and are remembered until code comes that can."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.records import UnreadableGroup, UnreadableJob
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import fetch, fetch_value, texts


class UnreadableStore:
    """Jobs that wait for code that can read their input."""

    def note(self, id: str, type: str, error: str, now: Instant | None = None) -> Op[int]:
        """Remember a job, or its newer error; return for how many microseconds it has been known. One statement."""
        return fetch_value("unreadable_note", id=id, type=type, error=error, now=now)

    def since(self, id: str) -> Op[Instant | None]:
        """Read when the code of a worker first could not read a job. One statement."""
        return fetch_value("unreadable_since", id=id)

    def page(self, types: Sequence[str], after: str, limit: int) -> Op[list[UnreadableJob]]:
        """Read those of some types after an id, also such as have ended meanwhile. One statement."""
        return fetch(UnreadableJob, "unreadable_page", types=texts(types), after=after, limit=limit)

    def forget(self, ids: Sequence[str]) -> Op[None]:
        """Forget jobs. One statement."""
        yield Statement("unreadable_forget", {"ids": texts(ids)})

    def count(self, limit: int) -> Op[int]:
        """Count those that still wait, up to a limit. One statement."""
        return fetch_value("unreadable_count", limit=limit)

    def groups(self) -> Op[list[UnreadableGroup]]:
        """Count those that still wait, by type. One statement."""
        return fetch(UnreadableGroup, "unreadable_groups")
