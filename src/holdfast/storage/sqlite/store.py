"""The SQLite store: the shared aggregates, overridden where an operation needs several statements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from holdfast.storage.aggregates.audit import Audit
from holdfast.storage.aggregates.cycle import Cycles, Runs, Slots
from holdfast.storage.aggregates.dead import DeadLetters
from holdfast.storage.aggregates.event import Events
from holdfast.storage.aggregates.figure import Figures
from holdfast.storage.aggregates.retention import Retention
from holdfast.storage.aggregates.schema import Schema
from holdfast.storage.aggregates.token import Tokens
from holdfast.storage.sqlfile import load_statements
from holdfast.storage.sqlite.chain import SqliteBlockers, SqliteChains
from holdfast.storage.sqlite.job import SqliteJobs
from holdfast.storage.sqlite.lease import SqliteLeases
from holdfast.storage.sqlite.vitals import SqliteVitals
from holdfast.storage.sqlite.worker import SqliteWorkers

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
