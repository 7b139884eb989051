"""What is to be done after a commit, and the jobs by which one can see that it still holds.

A caller may undo a part of its transaction in more words and ways than could be read from its statements. So nothing is
guessed: where a part may have been undone, the database is asked what became of one job of each write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from holdfast.core.records import Held, LeaseStatus
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

Action: TypeAlias = Callable[[], None]
Notification: TypeAlias = tuple[str, str]
"""A channel and a payload, for NOTIFY."""
Fate: TypeAlias = Literal["there", "completed", "cancelled", "redriven", "gone"]

_NO_TOKEN = "00000000-0000-0000-0000-000000000000"


class Witness(NamedTuple):
    """A job, and what has become of it if the write it represents was not undone."""

    job_id: str
    fate: Fate

    def confirms(self, status: LeaseStatus) -> bool:
        """Say whether the write holds, from what the database says of the job."""
        match self.fate:
            case "there":
                return status.lease != "gone"
            case "gone":
                return status.lease == "gone"
            case "redriven":
                return status.lease != "gone" and status.state != "failed"
            case _:
                return status.state == self.fate


class NotifyAction(msgspec.Struct, frozen=True):
    """An action that a server can do itself right after the commit, if it is asked to in the same message."""

    def __call__(self) -> None:
        """Do it without the server."""

    def take_notifications(self) -> tuple[Sequence[Notification], Action]:
        """Return what the server is to send in place of this action, and what is to be done if the commit fails.

        Nothing is to be sent if this is to be done as any other action.
        """
        raise NotImplementedError


class AfterCommit(Protocol):
    """Has something done when a transaction has committed, unless its witness says that the write was undone."""

    def __call__(self, action: Action, witness: Witness | None = None, /) -> None: ...


class Hooks:
    """What is to be done after one transaction, in the order in which it came."""

    __slots__ = ("_hooks", "_on_failed")

    def __init__(self) -> None:
        self._on_failed: Action | None = None
        self._hooks: list[tuple[Action, Witness | None]] = []

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, action: Action, witness: Witness | None = None) -> None:
        """Have something done after the commit; without a witness, whatever was undone."""
        self._hooks.append((action, witness))

    def update(self, others: Hooks) -> None:
        """Take over what was to be done after a part of the transaction."""
        self._hooks += others._hooks

    def review(self, store: Store) -> Op[None]:
        """Forget what belongs to writes that were undone. One statement, or none."""
        # What was done twice to one job was undone in between: the later one counts.
        latest = {each: each for _, each in self._hooks if each is not None}
        if not latest:
            return
        ids = sorted({each.job_id for each in latest})
        statuses = yield from store.jobs.lease_status([Held(id, _NO_TOKEN) for id in ids])
        found = {each.id: each for each in statuses}
        self._hooks = [
            (action, witness)
            for action, witness in self._hooks
            if witness is None
            or (latest[witness] is witness and witness.confirms(found[witness.job_id]))
        ]

    def take_notifications(self) -> Sequence[Notification]:
        """Return what the server can send itself, and keep the rest. The transaction is about to commit."""
        found = [each for each, _ in self._hooks if isinstance(each, NotifyAction)]
        # Transactions that start jobs of several types in several calls are rare.
        if not found or any(each != found[0] for each in found):
            return ()
        notifications, on_failed = found[0].take_notifications()
        if notifications:
            self._on_failed = on_failed
            self._hooks = [each for each in self._hooks if not isinstance(each[0], NotifyAction)]
        return notifications

    def fail(self) -> None:
        """Leave to others what the transaction was to take along, which has not committed."""
        if self._on_failed is not None:
            self._on_failed()

    def forget(self) -> None:
        """Do nothing of what only a witness could have confirmed."""
        self._hooks = [each for each in self._hooks if each[1] is None]

    def run(self) -> None:
        """Do what was asked for, and what was asked for twice in the same words once; the transaction has committed."""
        for action in dict.fromkeys(action for action, _ in self._hooks):
            action()
