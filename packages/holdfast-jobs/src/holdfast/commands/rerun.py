"""Running a durable function anew from one of its steps, with what was recorded before that step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.errors import InvalidOption, nearest
from holdfast.core.records import JobRecord
from holdfast.core.sealing import Sealer, is_sealed, open_output, seal_output
from holdfast.core.steps import UNDO, StepRecord, is_retry, retried_step
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

MAX_JOBS = 500
"""So many of the last jobs of a chain are searched for the step."""


def find_step(store: Store, chain_id: str, step: str) -> Op[tuple[JobRecord, list[StepRecord]]]:
    """Return the last job of a chain that has a step, and the records to copy. Raises: InvalidOption."""
    known: list[str] = []
    for job in reversed((yield from store.chains.jobs(chain_id, MAX_JOBS))):
        records = yield from store.steps.of_jobs([job.id])
        for each in records:
            # A step that is to be tried again has no record of its own yet.
            id = retried_step(each)
            if step in (str(id), id.name):
                return job, _before(records, each)
            known += (str(id), id.name)
    raise InvalidOption(
        f"chain {chain_id} has no step {step[:60]!r}",
        help=nearest(step, known) or f"use one of {', '.join(list(dict.fromkeys(known))[:20])}"
        if known
        else "only a durable function that has run has steps",
    )


def _before(records: Sequence[StepRecord], start: StepRecord) -> list[StepRecord]:
    """Return what ended before a step, and cursors where they are; what was undone has to be done again."""
    undone = {
        (each.name.removeprefix(UNDO), each.key, each.nth)
        for each in records
        if each.kind == "undo" and each.state == "done"
    }
    return [
        each
        for each in records
        if each.position < start.position
        and each.kind not in ("undo", "failure")
        and not is_retry(each)
        and (each.state != "open" or each.kind == "cursor")
        and (each.name, each.key, each.nth) not in undone
    ]


def copy_records(
    store: Store, sealer: Sealer | None, source: JobRecord, records: Sequence[StepRecord], id: str
) -> Op[None]:
    """Give a chain that was just started what another job has recorded. Raises: SealError.

    What is sealed is sealed for its chain, so it is sealed anew.
    """
    copies = [
        msgspec.structs.replace(
            each,
            output=seal_output(
                sealer, open_output(sealer, each.output, source.chain_id), id, source.type
            ),
        )
        if each.output is not None and is_sealed(each.output)
        else each
        for each in records
    ]
    if copies:
        yield from store.steps.copy(id, copies)
