"""Runs a cycle once for a test as a worker's tick would: requested, claimed, fenced, within its budget, recorded."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor

import msgspec

from holdfast.app import Holdfast
from holdfast.client.cycles import RunInfo
from holdfast.commands.cycles import request_cycle
from holdfast.core.cycle import REQUESTED, CycleSpec, CycleState, new_cycles
from holdfast.core.errors import CycleNotFound, nearest
from holdfast.scheduler.cycle_runner import CycleResources, CycleRunner, CycleStates
from holdfast.scheduler.runner import (
    Concurrency,
    RunnerContext,
    RunnerFailed,
    RunnerReport,
    TickSummary,
    single_tick_id,
)
from holdfast.scheduler.tick import Tick, TickOptions
from holdfast.settings import load_settings
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.store import Store
from holdfast.worker.handler_threads import HandlerThreads

_RECENT = 10


class OneRequest(CycleStates):
    """States in which only one request is due: not what the schedule missed while a test moved its clock."""

    def __init__(self, store: Store, cycles: Mapping[str, CycleSpec], slot: str) -> None:
        super().__init__(store, cycles)
        self._slot = slot

    async def state(self, name: str, context: RunnerContext) -> CycleState:
        """Return the state as a paused cycle has it, which only requests run."""
        found = await super().state(name, context)
        own = tuple(each for each in found.requests if each.name == self._slot)
        return msgspec.structs.replace(found, paused=True, requests=own)


class WatchedRunner:
    """A cycle's runner that keeps what its handler raised; a tick only reports it."""

    concurrency: Concurrency = "concurrent"

    def __init__(self, runner: CycleRunner) -> None:
        self.name, self.max_ms = runner.name, runner.max_ms
        self.error: Exception | None = None
        self._runner = runner

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Run the cycle."""
        try:
            return await self._runner.run(context)
        except RunnerFailed:
            raise
        except Exception as error:
            self.error = error
            raise


async def run_requested(
    app: Holdfast, database: Database, name: str, threads: Executor | None
) -> RunInfo:
    """Run a cycle once, whatever its schedule says, and return how the run was recorded.

    Raises: CycleNotFound; what the handler raised; TimeoutError for one that took longer than its budget.
    """
    spec = _find(app, name)
    store, request_id = database.store, new_id()
    await database.run_async(store.cycles.register(new_cycles({name: spec})))
    await database.run_async(request_cycle(store, name, request_id))
    assembly, slot = app.assembly(load_settings()), f"{REQUESTED}{request_id}"
    pool = HandlerThreads(1, "holdfast-cycle", threads)
    resources = CycleResources(
        database,
        OneRequest(store, {name: spec}, slot),
        pool,
        assembly.settings.outbox.lease_duration_ms,
        wrap_run=assembly.wrap_run,
    )
    runner = WatchedRunner(CycleRunner(spec, resources))
    limits = assembly.settings.worker
    tick = Tick(
        database,
        [runner],
        single_tick_id("test", request_id[-12:]),
        TickOptions(
            overall_ms=limits.tick_overall_max_ms,
            runner_ms=limits.tick_runner_max_ms,
            items=limits.tick_runner_max_items,
        ),
        observer=assembly.observer,
        threads=pool,
    )
    try:
        summary = await tick.run()
    finally:
        await tick.close()
    if runner.error is not None:
        raise runner.error
    return _find_recorded(name, slot, await app.aio.cycles.runs(name, limit=_RECENT), summary)


def _find(app: Holdfast, name: str) -> CycleSpec:
    spec = app.cycle_specs.get(name)
    if spec is None:
        known = ", ".join(sorted(app.cycle_specs)) or "none"
        raise CycleNotFound(
            f"the application has no cycle {name[:60]!r}",
            help=nearest(name, app.cycle_specs) or f"its cycles: {known}",
        )
    return spec


def _find_recorded(name: str, slot: str, runs: list[RunInfo], summary: TickSummary) -> RunInfo:
    found = next((each for each in runs if each.slot == slot), None)
    note = summary.runner_results[name].note
    if found is not None and found.outcome == "completed":
        return found
    if found is not None and found.outcome == "aborted":
        raise TimeoutError(f"the cycle {name} was {note or found.error}")
    raise AssertionError(f"the cycle {name} did not run: {note or 'another run holds it'}")
