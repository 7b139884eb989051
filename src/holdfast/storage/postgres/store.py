"""The PostgreSQL store: every operation is one statement, so the shared aggregates serve as they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from holdfast.storage.aggregates.audit import Audit
from holdfast.storage.aggregates.chain import Blockers, Chains
from holdfast.storage.aggregates.cycle import Cycles, Runs, Slots
from holdfast.storage.aggregates.dead import DeadLetters
from holdfast.storage.aggregates.event import Events
from holdfast.storage.aggregates.figure import Figures
from holdfast.storage.aggregates.job import Jobs
from holdfast.storage.aggregates.lease import Leases
from holdfast.storage.aggregates.retention import Retention
from holdfast.storage.aggregates.schema import Schema
from holdfast.storage.aggregates.token import Tokens
from holdfast.storage.aggregates.vitals import Vitals
from holdfast.storage.aggregates.worker import Workers
from holdfast.storage.sqlfile import (
    Compiled,
    ParamStyle,
    compile_all,
    load_statements,
    place_schema,
)

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
