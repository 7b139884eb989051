"""What a command returns: its answer, and all that follows from it once its transaction has committed.

A command is written once, as an operation that returns a `Change`. The Python API, HTTP, the pages and the command line
authorise the caller, run the command and render the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.core.events import Event, event
from holdfast.core.records import AuditRecord, JobRef
from holdfast.notify.base import Hint
from holdfast.storage.after_commit import Witness
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

T = TypeVar("T")
U = TypeVar("U")


class Effect(NamedTuple):
    """One thing that a command changed, for the audit log."""

    target: str
    before: Any = None
    after: Any = None


class Change(msgspec.Struct, Generic[T], frozen=True):
    """The outcome of a command.

    After the commit, `hints` go to workers and waiters and `events` to observers. A caller can undo all of a command or
    nothing of it, so the fate of one job, the `witness`, shows whether it still holds.
    """

    answer: T
    effects: Sequence[Effect] = ()
    hints: Sequence[Hint] = ()
    events: Sequence[Event] = ()
    witness: Witness | None = None

    def with_answer(self, answer: U) -> Change[U]:
        """Return the same change with another answer."""
        return Change(answer, self.effects, self.hints, self.events, self.witness)


def count_answer(op: Op[Change[list[str]]]) -> Op[Change[int]]:
    """Answer with how many things a command changed instead of which."""
    change = yield from op
    return change.with_answer(len(change.answer))


def drop_answer(op: Op[Change[Any]]) -> Op[Change[None]]:
    """Leave out the answer of a command."""
    return (yield from op).with_answer(None)


def with_audit(
    store: Store, op: Op[Change[T]], entries_of: Callable[[Sequence[Effect]], Sequence[AuditRecord]]
) -> Op[Change[T]]:
    """Run a command and record its effects in the same transaction; one without effect leaves no entry."""
    change = yield from op
    if change.effects:
        yield from store.audit.append(entries_of(change.effects))
    return change


def due_hints(types: Iterable[str]) -> list[Hint]:
    """Jobs of these types may be due."""
    return [Hint("due", type) for type in sorted(set(types))]


def lost_hints(jobs_by_worker: Mapping[str, Sequence[str]]) -> list[Hint]:
    """Workers have lost jobs that they held."""
    return [
        Hint("lost", worker=each, ids=tuple(ids)) for each, ids in sorted(jobs_by_worker.items())
    ]


def ended_hints(chain_ids: Iterable[str]) -> list[Hint]:
    """Chains have ended."""
    ids = tuple(sorted(set(chain_ids)))
    return [Hint("ended", ids=ids)] if ids else []


def group_by_worker(pairs: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    """Group job ids by the worker that held them."""
    held: dict[str, list[str]] = defaultdict(list)
    for worker, job_id in pairs:
        if worker is not None:
            held[worker].append(job_id)
    return held


def job_events(name: str, jobs: Iterable[JobRef]) -> list[Event]:
    """Return one event per job."""
    return [event(name, job_id=each.id, type=each.type) for each in jobs]
