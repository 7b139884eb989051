"""What a job is to cost, read once when it is started."""

from __future__ import annotations

from holdfast.core.flow import Flow, read_field
from holdfast_costs.errors import CostInvalid, CostTooLarge


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
