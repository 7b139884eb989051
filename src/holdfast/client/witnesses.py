"""The job of each kind of write by which one can see whether a caller has undone it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.client.views import Chain
from holdfast.commands.cancel import EndReport
from holdfast.core.records import JobRef, TerminalState
from holdfast.storage.after_commit import Fate, Witness

_FATES: dict[TerminalState, Fate] = {"completed": "completed", "cancelled": "cancelled"}


def new_among(chains: Iterable[Chain]) -> Witness | None:
    """A chain that was started and is there; one that an earlier chain stands for shows nothing."""
    return next((Witness(str(each.id), "there") for each in chains if not each.deduplicated), None)


def ended_among(report: EndReport, state: TerminalState) -> Witness | None:
    """A job that was ended from outside."""
    return next((Witness(each.id, _FATES[state]) for each in report.ended), None)


def redriven_among(jobs: Sequence[JobRef]) -> Witness | None:
    """A job that had failed and went back to the queue."""
    return next((Witness(each.id, "redriven") for each in jobs), None)


def gone_among(chains: Sequence[str]) -> Witness | None:
    """A chain that was deleted; its id is that of its first job."""
    return next((Witness(each, "gone") for each in chains), None)
