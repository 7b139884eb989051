"""A handler's `Continue` as the successor that is written with the completion."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.client.options import check_attempts, check_priority, check_time, id_texts
from holdfast.client.targets import Targets
from holdfast.core.duration import milliseconds
from holdfast.core.errors import InvalidOption, UnknownJobType
from holdfast.core.model import Finish, Instant, NewBlocker, NewJob
from holdfast.core.outcome import Continue
from holdfast.ops.blockers import check_waits
from holdfast.storage.port import Store
from holdfast.storage.statement import Op
from holdfast.worker.attempt import Attempt
from holdfast.worker.judge import finish_of


class Continuation:
    """Turns `Continue` into the write that ends this job and starts the next one of its chain."""

    def __init__(self, worker: str, new_id: Callable[[], str], targets: Targets) -> None:
        self._worker = worker
        self._new_id = new_id
        self._targets = targets

    def finish(self, attempt: Attempt, answer: Continue) -> Finish:
        """Make the fenced write. Raises: UnknownJobType, InvalidName, InputInvalid, InvalidDuration, InvalidOption."""
        claimed = attempt.claimed
        job_id = self._new_id()
        name, text = self._payload(attempt, answer)
        priority = claimed.priority if answer.priority is None else answer.priority
        blockers = [
            NewBlocker(job_id, position, chain_id)
            for position, chain_id in enumerate(self._chains(attempt, answer))
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
        if finish.next is None or not finish.next_blockers:
            return
        successor = self._targets.successor(finish.next.type)
        if successor.waits_for is None:
            return
        ids = sorted({edge.chain_id for edge in finish.next_blockers})
        chains = yield from store.chains.get(ids)
        check_waits(successor.name, successor.waits_for, chains)

    def _payload(self, attempt: Attempt, answer: Continue) -> tuple[str, str]:
        successor = self._targets.successor(answer.type)
        allowed = attempt.type.continues_to
        if allowed is not None and successor.name not in allowed:
            raise UnknownJobType(
                f"{attempt.type.name} does not declare that it continues with {successor.name}"
            )
        return successor.name, self._targets.encode(successor, answer.input)

    @staticmethod
    def _chains(attempt: Attempt, answer: Continue) -> list[str]:
        chains = id_texts(answer.blockers)
        if attempt.claimed.chain_id in chains:
            raise InvalidOption(
                "the chain's next job would wait for its own chain, and neither would end",
                help="leave it out of the blockers; job.input is the way to hand something on",
            )
        return chains

    @staticmethod
    def _planned(attempt: Attempt, answer: Continue) -> Instant | None:
        if answer.after is None:
            return check_time(answer.at, None)
        check_time(answer.at, answer.after)
        return attempt.claimed.claimed_at + milliseconds(answer.after) * 1000
