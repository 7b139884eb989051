"""Tells observers what limits that count costs use, in the workers of applications that have some."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.events import Observer, wants_of
from holdfast.scheduler.runner import Concurrency, RunnerContext, RunnerReport
from holdfast_costs.events import COST_USED
from holdfast_costs.usage import read_usage

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings
    from holdfast.storage.store import Store

log = logging.getLogger("holdfast.costs")

LOOK_S = 15.0


class CostRunner:
    """Reads what is used every 15 seconds, if somebody wants to know; once in a tick."""

    name = "costs"
    max_ms: int | None = None
    concurrency: Concurrency = "continuous"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: set[str] = set()

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Tell what is used, in a worker until it stops."""
        observer = context.observer
        if observer is None or not wants_of(observer)(COST_USED.name):
            return context.counts
        while True:
            try:
                await self._tell(context, observer)
            except HoldfastError as error:
                log.warning("what limits use could not be read: %s", error)
            if context.mode == "tick" or await context.clock.wait(context.stopping, LOOK_S):
                return context.counts

    async def _tell(self, context: RunnerContext, observer: Observer) -> None:
        used = dict.fromkeys(self._told, 0.0)
        for each in await context.link.run(read_usage(self._store)):
            used[each.type] = max(used.get(each.type, 0.0), each.used / each.max)
        for type, ratio in sorted(used.items()):
            observer.observe(COST_USED(type=type, ratio=ratio))
        self._told = {type for type, ratio in used.items() if ratio}


def make_runner(app: Holdfast, settings: Settings) -> CostRunner | None:
    """Return the runner of an application with a type whose limits count costs."""
    if all(each.flow is None or each.flow.max_cost is None for each in app.registry):
        return None
    return CostRunner(app.database.store)


RUNNERS = (make_runner,)
