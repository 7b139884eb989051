"""What a job has emitted, on its page."""

from __future__ import annotations

from typing import Any

from holdfast.core.lifecycle import TERMINAL
from holdfast_dashboard.page_context import PageContext
from holdfast_dashboard.templates import compact_json
from holdfast_output.admin import OutputAdmin

SHOWN_CHARACTERS = 20_000


async def output_card(
    context: PageContext, job: dict[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """Return the card with the end of what a job has emitted, if it has emitted anything.

    Until the job has ended, the page's script follows the stream of its chain, after what the card shows.
    """
    items, total = await context.service.of(OutputAdmin).recent(
        context.caller, job["chain_id"], job["id"]
    )
    if not items:
        return None
    text = text_of([each.data for each in items])
    withheld = not context.caller.may("job.payload")
    follows = job["state"] not in TERMINAL and not withheld
    return "output_card.html", {
        "stream": f"/api/v1/chains/{job['chain_id']}/output/stream" if follows else None,
        "after": items[-1].id,
        "text": text[-SHOWN_CHARACTERS:],
        "total": total,
        "epoch": items[0].epoch,
        "withheld": withheld,
        "is_cut": len(items) < total or len(text) > SHOWN_CHARACTERS,
    }


def text_of(values: list[Any]) -> str:
    """Write items as a person reads them: texts as they came, as tokens do, anything else on a line of its own."""
    text, is_within_line = [], False
    for each in values:
        if isinstance(each, str):
            text.append(each)
            is_within_line = not each.endswith("\n")
        else:
            text += ["\n" if is_within_line else "", compact_json(each), "\n"]
            is_within_line = False
    return "".join(text)


CARDS = (output_card,)
