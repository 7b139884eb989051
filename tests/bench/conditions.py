"""The conditions under which queues slow down: what lies beside the jobs that are drained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows beside the drained ones, and whether somebody holds an old snapshot meanwhile."""

    name: str
    types: int = 1
    finished: int = 0
    delayed: int = 0
    unhandled: int = 0
    in_flight: int = 0
    held_snapshot: bool = False

    @property
    def is_seeded(self) -> bool:
        """Whether rows have to be put in beforehand."""
        return bool(self.finished or self.delayed or self.unhandled or self.in_flight)

    def scaled(self, share: float) -> Condition:
        """The same with fewer rows beside, for a quick run."""
        return replace(
            self,
            finished=int(self.finished * share),
            delayed=int(self.delayed * share),
            unhandled=int(self.unhandled * share),
        )


FRESH = Condition("fresh")


@contextmanager
def snapshot_held(url: str, wanted: bool = True) -> Iterator[None]:
    """Hold a snapshot, as a long report or a forgotten session does: no row that dies meanwhile can be removed."""
    if not wanted:
        yield
        return
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1").fetchall()
        yield
