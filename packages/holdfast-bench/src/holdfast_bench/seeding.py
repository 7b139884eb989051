"""The conditions under which queues slow down, and databases in which they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from holdfast.storage.id_generator import new_id
from holdfast_bench.handwritten import SQL
from holdfast_bench.workload import INPUT_TEXT


@dataclass(frozen=True, slots=True)
class LoadCondition:
    """Rows beside the drained ones, and whether an old snapshot is held meanwhile."""

    name: str
    finished: int = 0
    delayed: int = 0
    unhandled: int = 0
    in_flight: int = 0
    parked: int = 0
    held_snapshot: bool = False

    @property
    def is_seeded(self) -> bool:
        """Whether rows have to be put in beforehand."""
        rows = (self.finished, self.delayed, self.unhandled, self.in_flight, self.parked)
        return any(rows)

    def scale(self, share: float) -> LoadCondition:
        """The same with fewer rows beside, for a quick run."""
        return replace(
            self,
            finished=int(self.finished * share),
            delayed=int(self.delayed * share),
            unhandled=int(self.unhandled * share),
        )


FRESH = LoadCondition("fresh")


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


def seed(url: str, condition: LoadCondition, type: str = "noop") -> None:
    """Put the condition's rows into our tables."""
    rows: dict[str, Any] = {"input": INPUT_TEXT}
    with psycopg.connect(url, autocommit=True) as connection:
        if condition.finished:
            connection.execute(SQL["seed_finished"], rows | {"count": condition.finished})
        if condition.delayed:
            waiting = {"count": condition.delayed, "type": type, "after": "50 years"}
            connection.execute(SQL["seed_waiting"], rows | waiting)
        if condition.unhandled:
            waiting = {"count": condition.unhandled, "type": "nobody", "after": "0"}
            connection.execute(SQL["seed_waiting"], rows | waiting)
        if condition.in_flight:
            held = {"count": condition.in_flight, "type": type, "token": new_id()}
            connection.execute(SQL["seed_in_flight"], rows | held)
        if condition.parked:
            waiting = {"count": condition.parked, "type": type}
            connection.execute(SQL["seed_parked"], rows | waiting)
            connection.execute(SQL["seed_parked_vacuum"])


def reset(url: str, condition: LoadCondition = FRESH) -> None:
    """Bring our tables back to what the condition says, between two runs."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL["seed_vacuum" if condition.is_seeded else "seed_empty"])
