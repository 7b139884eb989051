"""What observers are told of a producer's writes, after their commit: the catalogue's events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.client.views import Chain
from holdfast.commands.cancel import EndReport
from holdfast.core.error_text import clean_text
from holdfast.core.events import Event, event
from holdfast.core.records import JobRef, State


def of_created(chains: Iterable[Chain]) -> list[Event]:
    """Chains were started; those that an earlier one stands for were not."""
    return [
        event("job_created", job_id=str(each.id), type=each.type, chain_id=str(each.id))
        for each in chains
        if not each.deduplicated
    ]


def of_ended(
    report: EndReport, state: State, reason: str | None = None, next_type: str | None = None
) -> list[Event]:
    """Jobs were ended from outside, and others with them or because of them."""
    events = []
    for each in report.ended:
        named = {"job_id": each.id, "type": each.type, "chain_id": each.chain_id}
        if state == "cancelled":
            said = clean_text(str(reason or ""))
            events.append(event("job_cancelled", **named, worker=each.worker, reason=said))
        elif next_type is not None:
            events.append(event("job_continued", **named, next_type=next_type))
        else:
            events.append(event("job_completed", **named))
    events += [
        event("job_failed", job_id=each.id, type=each.type, chain_id=each.chain_id)
        for each in report.fan_in.failed
    ]
    return events + [_named("job_unblocked", each) for each in report.fan_in.opened]


def of_redriven(jobs: Sequence[JobRef]) -> list[Event]:
    """Dead letters went back to the queue."""
    return [_named("job_redriven", each) for each in jobs]


def _named(name: str, job: JobRef) -> Event:
    return event(name, job_id=job.id, type=job.type)
