"""One module per figure or family of figures, and the list of them."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.figure import Bench, Result
from tests.bench.figures import (
    chain_step,
    dashboards,
    dead_rows,
    drain_batch,
    drain_io,
    drains,
    fan,
    idle,
    imports,
    latency,
    logging_cost,
    many_types,
    memory,
    pages,
    sqlite,
    start,
    two_processes,
    wal,
)

Measure = Callable[[Bench], list[Result]]

FIGURES: dict[Measure, tuple[str, ...]] = {
    module.measure: module.NAMES
    for module in (
        drains,
        two_processes,
        drain_io,
        latency,
        start,
        many_types,
        logging_cost,
        idle,
        dead_rows,
        sqlite,
        drain_batch,
        wal,
        chain_step,
        fan,
        memory,
        pages,
        dashboards,
        imports,
    )
}

WITHOUT_SERVER = frozenset((*sqlite.NAMES, "pages_sqlite", *imports.NAMES))
"""Figures that need no PostgreSQL: they are taken once, not on each server."""

GROUPS: dict[str, tuple[str, ...]] = {
    "worker": (
        *("drain", *two_processes.NAMES, *drain_io.NAMES, *latency.NAMES, *many_types.NAMES),
        *(*logging_cost.NAMES, *idle.NAMES),
    ),
    "start": start.NAMES,
    "conditions": tuple(drains.CONDITIONS),
    "steady": dead_rows.NAMES,
    "sqlite": sqlite.NAMES,
    "costs": (
        *(*drain_batch.NAMES, *wal.NAMES, *chain_step.NAMES, *fan.NAMES, *memory.NAMES),
        *imports.NAMES,
    ),
    "dashboard": (*pages.NAMES, *dashboards.NAMES),
}
"""Names for several figures at once."""
