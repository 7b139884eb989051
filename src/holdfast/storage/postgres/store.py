"""The PostgreSQL store: every operation is one statement, so the shared aggregates serve as they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from holdfast.storage.sql_loader import (
    Compiled,
    ParamStyle,
    compile_all,
    load_statements,
    place_schema,
)
from holdfast.storage.store.audit import Audit
from holdfast.storage.store.chains import Blockers, Chains
from holdfast.storage.store.cycles import Cycles, Runs, Slots
from holdfast.storage.store.events import Events
from holdfast.storage.store.jobs import DeadLetters, Jobs
from holdfast.storage.store.leases import Leases
from holdfast.storage.store.retention import Retention
from holdfast.storage.store.schema import Schema
from holdfast.storage.store.statistics import Figures, Vitals
from holdfast.storage.store.tokens import Tokens
from holdfast.storage.store.workers import Workers

OLDEST_VERSION, TESTED_VERSION = 14, 18
"""The range of PostgreSQL versions that we support."""

JIT_ABOVE_COST = 100_000
"""What a server takes as worth compiling by default; the estimates of our statements stay below."""


class PostgresStore:
    """See `storage.port.Store`."""

    dialect = "postgresql"

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.leases = Leases()
        self.chains = Chains()
        self.blockers = Blockers()
        self.events = Events()
        self.workers = Workers()
        self.dead_letters = DeadLetters()
        self.audit = Audit()
        self.tokens = Tokens()
        self.figures = Figures()
        self.cycles = Cycles()
        self.slots = Slots()
        self.runs = Runs()
        self.retention = Retention()
        self.vitals = Vitals()
        self.schema = Schema()


@cache
def postgres_statements(style: ParamStyle, schema: str) -> Mapping[str, Compiled]:
    """Every statement, compiled for one driver and schema."""
    statements = load_statements("holdfast.storage.postgres")
    return compile_all(statements, style, lambda text: place_schema(text, schema))
