"""What all parts of one worker share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.jobtype import JobType
from holdfast.storage.database import Database
from holdfast.storage.port import Store
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters
from holdfast.worker.holdings import Holdings
from holdfast.worker.options import Timings, WorkerOptions
from holdfast.worker.telling import Telling
from holdfast.worker.terms import TypeTerms
from holdfast.worker.trouble import Trouble


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

    @property
    def store(self) -> Store:
        """The database's meaning."""
        return self.database.store
