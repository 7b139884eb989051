"""Has the readers of the event log read to its end, as a tick does."""

from __future__ import annotations

from holdfast.app import Holdfast
from holdfast.scheduler.runner import Now, concurrency_of, single_tick_id
from holdfast.scheduler.tick import Tick, TickOptions
from holdfast.settings import load_settings
from holdfast.storage.id_generator import new_id


async def read_log(app: Holdfast, now: Now, limit_ms: int) -> int:
    """Run what reads without end in a worker until there is nothing more to read; return how much that was."""
    assembly = app.assembly(load_settings())
    endless = ("continuous", "leading")
    runners = [each for each in assembly.runners if concurrency_of(each) in endless]
    if not runners:
        return 0
    tick = Tick(
        app.database,
        runners,
        single_tick_id("test", new_id()[-12:]),
        TickOptions(overall_ms=limit_ms, runner_ms=limit_ms),
        observer=assembly.observer,
        now=now,
    )
    try:
        summary = await tick.run()
    finally:
        await tick.close()
    return summary.total_processed
