"""Live rows for jobs that were just written, and successors in their chains."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.model import Instant, NewJob
from holdfast.storage.aggregates.wire import document, texts
from holdfast.storage.sqlite.tally import Tally
from holdfast.storage.statement import Op, Statement


def queue_jobs(ids: Sequence[str], awaited: bool = False) -> Op[None]:
    """Give jobs that were just written their live rows."""
    if ids:
        yield Statement("job_insert_queue", {"ids": texts(ids), "awaited": awaited})


def write_successors(
    successors: Sequence[tuple[NewJob, bool]], now: Instant, tally: Tally
) -> Op[None]:
    """Continue chains; each successor is awaited if the job that it follows was."""
    if not successors:
        return
    yield Statement("job_continue", {"rows": document([job for job, _ in successors]), "now": now})
    yield from queue_jobs([job.id for job, awaited in successors if not awaited])
    yield from queue_jobs([job.id for job, awaited in successors if awaited], awaited=True)
    for job, _ in successors:
        tally.of(job.type).started += 1
