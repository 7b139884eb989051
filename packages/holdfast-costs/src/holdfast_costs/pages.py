"""What a job costs, on its page."""

from __future__ import annotations

from typing import Any

from holdfast_costs.admin import CostAdmin
from holdfast_dashboard.page_context import PageContext


async def cost_card(context: PageContext, job: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the card with what a job costs of its type's limits, if they count costs."""
    if not context.caller.may("cost.list"):
        return None
    admin = context.service.of(CostAdmin)
    usage = await admin.of_type(context.caller, job["type"])
    if not usage:
        return None
    cost, spent = await admin.of_job(context.caller, job["id"])
    return "cost_card.html", {"cost": cost, "spent": spent, "usage": usage[:10]}


CARDS = (cost_card,)
