"""The SQLite store: the shared aggregates, overridden where an operation needs several statements.

What a SQLite file says of itself; it has no dead rows to sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from holdfast.core.records import Swept
from holdfast.storage.operation import Op
from holdfast.storage.sql_loader import load_statements
from holdfast.storage.sqlite.chains import SqliteBlockers, SqliteChains
from holdfast.storage.sqlite.jobs import SqliteJobs
from holdfast.storage.sqlite.leases import SqliteLeases, SqliteWorkers
from holdfast.storage.store.audit import Audit
from holdfast.storage.store.cycles import Cycles, Runs, Slots
from holdfast.storage.store.events import Events
from holdfast.storage.store.jobs import DeadLetters
from holdfast.storage.store.retention import Retention
from holdfast.storage.store.schema import Schema
from holdfast.storage.store.statistics import Figures, Vitals
from holdfast.storage.store.tokens import Tokens


class SqliteVitals(Vitals):
    """See `storage.schedule_port.VitalsStore`."""

    def sweep(self, few: int) -> Op[Swept | None]:
        yield from ()
        return None


PACKAGE = "holdfast.storage.sqlite"


class SqliteStore:
    """See `storage.port.Store`."""

    dialect = "sqlite"

    def __init__(self) -> None:
        self.jobs = SqliteJobs()
        self.leases = SqliteLeases()
        self.chains = SqliteChains()
        self.blockers = SqliteBlockers()
        self.events = Events()
        self.workers = SqliteWorkers()
        self.dead_letters = DeadLetters()
        self.audit = Audit()
        self.tokens = Tokens()
        self.figures = Figures()
        self.cycles = Cycles()
        self.slots = Slots()
        self.runs = Runs()
        self.retention = Retention()
        self.vitals = SqliteVitals()
        self.schema = Schema()


@cache
def sqlite_statements() -> Mapping[str, str]:
    """Every statement as the driver takes it, without the comments above it.

    The driver opens a transaction by itself only for a text that begins with the verb of a write.
    """
    return {name: _bare(text) for name, text in load_statements(PACKAGE).items()}


def _bare(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
