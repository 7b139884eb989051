"""What jobs cost: read when they start, settled by what attempts spent, given back where no handler was called."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import LeaseLost
from holdfast.core.flow import MAX_COST, Flow, read_field
from holdfast.core.instants import Instant
from holdfast.core.partitions import PartitionRule, step_us
from holdfast.core.records import ClaimedJob
from holdfast.storage.database import Database
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store import Store
from holdfast.storage.store.params import document
from holdfast_costs.errors import CostConflict, CostInvalid, CostTooLarge

if TYPE_CHECKING:
    from holdfast.worker.attempt import Attempt


def cost_of(flow: Flow, text: str) -> int | None:
    """Return what a job with this stored input costs, where that counts. Raises: CostInvalid, CostTooLarge."""
    if flow.cost is None or flow.max_cost is None:
        return None
    cost = read_field(flow.cost, flow.codec, text)
    if not isinstance(cost, int) or isinstance(cost, bool) or cost < 0:
        raise CostInvalid(f"{flow.type} counts what jobs cost, and {repr(cost)[:60]} is no cost")
    if cost > flow.max_cost:
        raise CostTooLarge(f"a {flow.type} job of {cost:,} never fits into {flow.max_cost:,}")
    return cost


def settle(
    store: Store,
    job: ClaimedJob,
    spent: int,
    rules: Sequence[PartitionRule],
    now: Instant | None = None,
) -> Op[bool]:
    """Put what an attempt spent in the place of its cost, in partitions of these rules; False without its token.

    The last word of an attempt counts.
    """
    steps = [
        {
            "gate": each.id,
            "step": step_us(each.cost_rate, each.cost_period_ms or 0),
            "period_ms": each.cost_period_ms,
        }
        for each in rules
        if each.cost_rate is not None
    ]
    proof: dict[str, Value] = {"id": job.id, "token": job.token, "at": job.claimed_at}
    params = {**proof, "spent": spent, "rows": document(steps), "now": now}
    rows = yield Statement("cost_settle", params)
    if store.dialect != "sqlite":
        return bool(rows[0][0])
    yield Statement("cost_signal", params)
    return bool((yield Statement("cost_spent", params)))


def charged_rules(flow: Flow | None, gate: str | None) -> list[PartitionRule]:
    """Return the partitions in which an attempt was charged: its key's, and those of all keys."""
    if flow is None or gate is None:
        return []
    key = PartitionRule(
        gate,
        cost_rate=flow.per_key.cost_rate if gate != f"{flow.type}#" else None,
        cost_period_ms=flow.per_key.cost_period_ms,
    )
    return [each for each in (key, *flow.shared) if each.cost_rate is not None]


def refund(store: Store, attempt: Attempt) -> Op[None]:
    """Give back what an attempt was charged whose handler was not called; nothing if it has lost its job."""
    if rules := charged_rules(attempt.type.flow, attempt.claimed.gate):
        yield from settle(store, attempt.claimed, 0, rules)


def spend(
    database: Database, job: ClaimedJob, flow: Flow | None, spent: object
) -> Coroutine[Any, Any, None] | None:
    """Settle what an attempt spent, at once, or awaited on an event loop. Raises: CostConflict, LeaseLost."""
    if not isinstance(spent, int) or isinstance(spent, bool) or not 0 <= spent <= MAX_COST:
        raise CostConflict(f"{repr(spent)[:60]} is not what a job can have spent")
    rules = charged_rules(flow, job.gate)
    if not rules:
        raise CostConflict(f"{job.type} has no rate that counts costs")
    op = settle(database.store, job, spent, rules)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _check(job, database.run(op))
        return None
    return _spend_async(database, job, op)


async def _spend_async(database: Database, job: ClaimedJob, op: Op[bool]) -> None:
    _check(job, await database.run_async(op))


def _check(job: ClaimedJob, is_held: bool) -> None:
    if not is_held:
        raise LeaseLost(f"job {job.id} is no longer held by this attempt")
