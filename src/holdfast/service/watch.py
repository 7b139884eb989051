"""Following jobs: what is new or changed between two looks at the same list."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.model import JobRecord


class Watch:
    """Remembers how each job was last seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}

    def changes(self, jobs: list[JobRecord]) -> Iterator[JobRecord]:
        """Return what is new or changed since the last look, the oldest first."""
        before, self._seen = self._seen, {each.id: (each.state, each.attempt) for each in jobs}
        for job in reversed(jobs):
            if before.get(job.id) != self._seen[job.id]:
                yield job
