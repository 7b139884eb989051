"""What all parts of one worker share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.events import Observer
from holdfast.core.registry import JobType
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.store import Store
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters
from holdfast.worker.emitter import Telling, Trouble
from holdfast.worker.held_leases import Holdings
from holdfast.worker.options import Timings, TypeTerms, WorkerOptions


@dataclass(frozen=True, slots=True)
class Workplace:
    """One worker's identity, rules and records."""

    id: str
    options: WorkerOptions
    timings: Timings
    types: Mapping[str, JobType]
    terms: TypeTerms
    database: Database
    clock: Clock
    holdings: Holdings
    counters: Counters
    telling: Telling
    trouble: Trouble

    @classmethod
    def of(
        cls,
        database: Database,
        types: Mapping[str, JobType],
        options: WorkerOptions,
        observer: Observer | None,
        clock: Clock,
    ) -> Workplace:
        """Make the place of a worker that handles these types, under an id that no other start has.

        Raises: HF017, HF018, HF019 for timings that do not fit.
        """
        handled = {name: each for name, each in types.items() if each.handler is not None}
        id, counters = f"{options.name}-{new_id()[-12:]}", Counters()
        telling = Telling(id, observer, clock, counters)
        return cls(
            id=id,
            options=options,
            timings=options.timing([each.lease or options.lease for each in handled.values()]),
            types=handled,
            terms=TypeTerms(handled, options),
            database=database,
            clock=clock,
            holdings=Holdings(),
            counters=counters,
            telling=telling,
            trouble=Trouble(telling, clock),
        )

    @property
    def store(self) -> Store:
        """The database's meaning."""
        return self.database.store
