"""One module per figure or family of figures, and the list of them."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.figure import Bench, Result
from tests.bench.figures import (
    chain_step,
    dashboards,
    drain_batch,
    drain_io,
    drains,
    fan,
    idle,
    imports,
    latency,
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
        drain_io,
        drain_batch,
        two_processes,
        latency,
        start,
        wal,
        chain_step,
        fan,
        memory,
        idle,
        sqlite,
        pages,
        dashboards,
        imports,
    )
}
