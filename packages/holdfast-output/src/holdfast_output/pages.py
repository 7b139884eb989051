"""What a job has emitted, on its page."""

from __future__ import annotations

from typing import Any

from holdfast_dashboard.page_context import PageContext
from holdfast_dashboard.templates import compact_json
from holdfast_output.admin import OutputAdmin

SHOWN_CHARACTERS = 20_000


async def output_card(
    context: PageContext, job: dict[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """Return the card with the end of what a job has emitted, if it has emitted anything."""
    items, total = await context.service.of(OutputAdmin).recent(
        context.caller, job["chain_id"], job["id"]
    )
    if not items:
        return None
    text = text_of([each.data for each in items])
    return "output_card.html", {
        "text": text[-SHOWN_CHARACTERS:],
        "total": total,
        "epoch": items[0].epoch,
        "withheld": not context.caller.may("job.payload"),
        "is_cut": len(items) < total or len(text) > SHOWN_CHARACTERS,
    }


def text_of(values: list[Any]) -> str:
    """Write items as a person reads them: texts joined, as tokens are, and anything else line by line."""
    if all(isinstance(each, str) for each in values):
        return "".join(values)
    return "\n".join(compact_json(each) for each in values)


CARDS = (output_card,)
