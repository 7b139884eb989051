"""Gives debounced jobs the input they were last asked for with, just before they start."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import DEBOUNCED, Held
from holdfast.worker.attempt import Attempt
from holdfast.worker.worker_context import WorkerContext

PURPOSE = "debounce"


def has_debounced(batch: Sequence[Attempt]) -> bool:
    """Whether a call's jobs need a look before they start."""
    return any(each.claimed.blockers == DEBOUNCED for each in batch)


async def settle_inputs(
    context: WorkerContext, batch: Sequence[Attempt]
) -> tuple[list[Attempt], list[Attempt]]:
    """Return what may start, with its last input, and what is to be given back because it waits for quiet.

    A database that fails here costs no attempt: everything is given back then.
    """
    pairs = [
        Held(each.claimed.id, each.claimed.token)
        for each in batch
        if each.claimed.blockers == DEBOUNCED
    ]
    try:
        found = await context.database.run_async(context.store.debounce.settle(pairs))
    except Exception as error:
        context.health.report_error(PURPOSE, error)
        return [], list(batch)
    context.health.report_ok(PURPOSE)
    settled = {each.job_id: each for each in found}
    ready, back = [], []
    for attempt in batch:
        answer = settled.get(attempt.claimed.id)
        if attempt.claimed.blockers == DEBOUNCED and (answer is None or answer.is_put_off):
            back.append(attempt)
            continue
        if answer is not None and answer.input is not None:
            attempt.claimed.input, attempt.claimed.version = answer.input, answer.version
        ready.append(attempt)
    return ready, back
