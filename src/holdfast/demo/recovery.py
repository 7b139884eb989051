"""What a killed worker held, followed until others have it: the countdown, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.records import Held, Instant
from holdfast.demo.shop import app


@dataclass(frozen=True, slots=True)
class Recovered:
    """How a worker's death ended for its jobs."""

    jobs: int
    seconds: float


class Recovery:
    """The jobs that a dead worker's leases still hold, by the database's own word and clock."""

    def __init__(self, name: str, worker: str) -> None:
        """Read what the worker of this name and id held when it died."""
        self.name = name
        self.held: list[Held] = app.database.read(app.database.store.leases.held(worker))
        self._worker = worker
        self._died_at = _clock()

    def left_s(self) -> float:
        """Return how long the leases still last, 0 when they have ended."""
        leases = app.database.read(app.database.store.leases.page(100, self._worker))
        ends = max((each.expires_at for each in leases), default=0)
        return max(0, ends - _clock()) / 1_000_000

    def look(self) -> Recovered | None:
        """Return the result once every job was taken back, None before."""
        stands = app.database.read(app.database.store.jobs.stand(self.held))
        if any(each.standing == "held" for each in stands):
            return None
        return Recovered(len(self.held), (_clock() - self._died_at) / 1_000_000)


def _clock() -> Instant:
    return app.database.read(app.database.store.schema.clock())
