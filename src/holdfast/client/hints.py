"""Hints of a producer: whom its writes concern, said once the transaction has committed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.commands.cancel import EndReport
from holdfast.commands.delete import DeleteReport
from holdfast.commands.publish import Delivery
from holdfast.commands.reap import ReapReport
from holdfast.core.errors import HoldfastError
from holdfast.core.records import JobRef, Reaped
from holdfast.notify.base import Hint, Notifier

log = logging.getLogger("holdfast.client")


class HintSender:
    """Hands hints to the notifier, which is made at the first of them."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._is_reported = False
        self._gathered: ContextVar[dict[Hint, None] | None] = ContextVar(
            "holdfast_hints", default=None
        )

    def send(self, hints: Iterable[Hint]) -> None:
        """Say what a commit has changed; never waits and never raises."""
        gathered = self._gathered.get()
        if gathered is not None:
            gathered.update(dict.fromkeys(hints))
            return
        try:
            notifier = self._notifier()
        except HoldfastError as error:
            # What the hints are about is committed: an error now would make the caller do it again.
            if not self._is_reported:
                self._is_reported = True
                log.error("hints are not sent, workers find jobs by polling: %s", error)
            return
        notifier.send(list(hints))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold hints back until the block ends, however many transactions commit in it; blocks may be nested."""
        outer = self._gathered.get()
        if outer is not None:
            yield
            return
        token = self._gathered.set({})
        try:
            yield
        finally:
            gathered = self._gathered.get()
            self._gathered.reset(token)
            if gathered:
                self.send(gathered)


@dataclass(frozen=True, slots=True)
class Hints:
    """What is to be said after a commit, and through whom; equal ones are worth saying once."""

    sender: HintSender
    hints: tuple[Hint, ...]

    def __call__(self) -> None:
        """Say it."""
        self.sender.send(self.hints)


def of_due(types: Iterable[str]) -> list[Hint]:
    """Jobs of these types may be due."""
    return [Hint("due", type) for type in sorted(set(types))]


def of_moved(jobs: Iterable[JobRef]) -> list[Hint]:
    """Jobs that came back into play may be due."""
    return of_due(each.type for each in jobs)


def of_ended(report: EndReport, goes_on: bool = False) -> list[Hint]:
    """Workers lost what they held, chains ended unless they go on, and whatever waited for them may be due."""
    lost: dict[str, list[str]] = defaultdict(list)
    for each in report.ended:
        if each.worker is not None:
            lost[each.worker].append(each.id)
    hints = [Hint("lost", worker=worker, ids=tuple(ids)) for worker, ids in sorted(lost.items())]
    over = (*(() if goes_on else report.ended), *report.fan_in.failed)
    if over:
        hints.append(Hint("ended", ids=tuple(sorted({each.chain_id for each in over}))))
    return [*hints, *of_moved(report.fan_in.opened)]


def of_deleted(report: DeleteReport) -> list[Hint]:
    """Workers lost what they held, and nobody needs to wait for the chains any more."""
    lost = (Hint("lost", worker=each, ids=tuple(ids)) for each, ids in sorted(report.lost.items()))
    return [*lost, Hint("ended", ids=tuple(report.chains))]


def of_delivered(delivery: Delivery) -> list[Hint]:
    """Events that waited became jobs that may be due, and their own chains ended."""
    return [*of_due(delivery.types), *of_ended(delivery.end)]


def of_reaped(jobs: Iterable[Reaped]) -> list[Hint]:
    """Jobs that were taken back are due again, and their workers have lost them."""
    due: set[str] = set()
    lost: dict[str, list[str]] = defaultdict(list)
    for each in jobs:
        lost[each.worker].append(each.id)
        if each.state == "pending":
            due.add(each.type)
    return [
        *of_due(due),
        *(Hint("lost", worker=worker, ids=tuple(ids)) for worker, ids in sorted(lost.items())),
    ]


def of_reap(report: ReapReport) -> list[Hint]:
    """The same for all that a look of the reaper led to: chains that failed, and jobs that no longer wait for them."""
    over = {*report.failed, *(each.chain_id for each in report.fan_in.failed)}
    ended = [Hint("ended", ids=tuple(sorted(over)))] if over else []
    return [*of_reaped(report.page.reaped), *ended, *of_moved(report.fan_in.opened)]
