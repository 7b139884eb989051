"""A handler's `Continue` as the successor that is written with the completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from holdfast.client.options import check_attempts, check_priority, check_time
from holdfast.core.codec import encode_any
from holdfast.core.duration import milliseconds
from holdfast.core.errors import UnknownJobType
from holdfast.core.jobtype import JobType
from holdfast.core.model import Finish, Instant, NewBlocker, NewJob
from holdfast.core.outcome import Continue
from holdfast.core.registry import check_name
from holdfast.ops.blockers import check_waits
from holdfast.storage.port import Store
from holdfast.storage.statement import Op
from holdfast.worker.attempt import Attempt
from holdfast.worker.judge import finish_of

TypeOf = Callable[[Any], JobType | None]
"""Finds a job type by name or by its handler function."""


class Continuation:
    """Turns `Continue` into the write that ends this job and starts the next one of its chain."""

    def __init__(self, worker: str, new_id: Callable[[], str], type_of: TypeOf) -> None:
        self._worker = worker
        self._new_id = new_id
        self._type_of = type_of

    def finish(self, attempt: Attempt, answer: Continue) -> Finish:
        """Make the fenced write. Raises: UnknownJobType, InvalidName, InputInvalid, InvalidDuration, InvalidOption."""
        claimed = attempt.claimed
        job_id = self._new_id()
        name, text = self._payload(attempt, answer)
        priority = claimed.priority if answer.priority is None else answer.priority
        blockers = [
            NewBlocker(job_id, position, str(_chain_id(each)))
            for position, each in enumerate(answer.blockers)
        ]
        successor = NewJob(
            id=job_id,
            chain_id=claimed.chain_id,
            chain_index=claimed.chain_index + 1,
            type=name,
            input=text,
            priority=check_priority(priority),
            at=self._planned(attempt, answer),
            trace=claimed.trace,
            blockers=len(blockers),
            **answer.options,
        )
        check_attempts(successor.max_attempts)
        return finish_of(attempt, self._worker, "continue", next=successor, next_blockers=blockers)

    def check_waits(self, store: Store, finish: Finish) -> Op[None]:
        """Refuse blockers of a successor that its type does not declare to wait for. Raises: UnknownJobType.

        Chains that were started in another transaction still open are not seen yet, and not refused.
        """
        known = None if finish.next is None else self._type_of(finish.next.type)
        if known is None or known.waits_for is None or not finish.next_blockers:
            return
        ids = sorted({edge.chain_id for edge in finish.next_blockers})
        chains = yield from store.chains.get(ids)
        check_waits(known.name, known.waits_for, chains)

    def _payload(self, attempt: Attempt, answer: Continue) -> tuple[str, str]:
        known = self._type_of(answer.type)
        if known is None and not isinstance(answer.type, str):
            raise UnknownJobType(f"{answer.type!r} is not the handler of a job type")
        name = check_name(answer.type) if known is None else known.name
        allowed = attempt.type.continues_to
        if allowed is not None and name not in allowed:
            raise UnknownJobType(
                f"{attempt.type.name} does not declare that it continues with {name}"
            )
        return name, encode_any(answer.input) if known is None else known.input.encode(answer.input)

    @staticmethod
    def _planned(attempt: Attempt, answer: Continue) -> Instant | None:
        if answer.after is None:
            return check_time(answer.at, None)
        check_time(answer.at, answer.after)
        return attempt.claimed.claimed_at + milliseconds(answer.after) * 1000


def _chain_id(blocker: Any) -> UUID | str:
    found: UUID | str = getattr(blocker, "id", blocker)
    return found
