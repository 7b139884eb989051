"""The desk: where every question and command of every surface passes, its role checked and its effect audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from holdfast.admin.roles import Principal, check, may
from holdfast.commands.audit import audited
from holdfast.core.events import Event
from holdfast.core.records import AuditRecord
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.storage.store import Store

T = TypeVar("T")

READ_TIMEOUT_MS = 5_000
"""A page that takes longer than this is not worth waiting for."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, under which request, and why they want a change."""

    principal: Principal
    request_id: str | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """Who it is."""
        return self.principal.name

    def may(self, action: str) -> bool:
        """Say whether the caller may do this."""
        return may(self.principal, action)


class Effect(NamedTuple):
    """One thing that a command changed, with what was and what is."""

    target: str
    before: Any = None
    after: Any = None


class Change(NamedTuple):
    """What came of a command: its answer, its effects, whom it concerns, and what observers are told."""

    answer: Any
    effects: Sequence[Effect]
    hints: Sequence[Hint] = ()
    events: Sequence[Event] = ()


class Desk:
    """Runs operations for callers. Reads have a statement timeout; a write and its audit are one transaction."""

    def __init__(self, app: Holdfast, read_timeout_ms: int = READ_TIMEOUT_MS) -> None:
        self.app = app
        self._read_timeout_ms = read_timeout_ms

    @property
    def store(self) -> Store:
        """The store's meaning."""
        return self.app.database.store

    async def read(self, caller: Caller, action: str, op: Callable[[Store], Op[T]]) -> T:
        """Answer a question. Raises: Refused, DatabaseBusy, DatabaseUnreachable."""
        check(caller.principal, action)
        return await self.look(op)

    async def look(self, op: Callable[[Store], Op[T]]) -> T:
        """Read what is nobody's business but the service's own: who asks. Raises: DatabaseBusy, DatabaseUnreachable."""
        return await self.app.database.read_async(op(self.store), self._read_timeout_ms)

    async def change(self, caller: Caller, action: str, op: Callable[[Store], Op[Change]]) -> Any:
        """Carry out a command, audited, and tell workers and observers after its commit. Raises: Refused."""
        check(caller.principal, action)
        store = self.store
        change = await self.app.database.run_async(
            audited(store, op(store), lambda done: deeds_of(caller, action, done.effects))
        )
        if change.hints:
            self.app.notifier.send(change.hints)
        self.app.tell(change.events)
        return change.answer


def deeds_of(caller: Caller, action: str, effects: Sequence[Effect]) -> list[AuditRecord]:
    """Return what the audit log says of effects."""
    return [
        AuditRecord(
            id=new_id(),
            actor=caller.name,
            role=caller.principal.role.word,
            action=action,
            target=each.target,
            before=_json(each.before),
            after=_json(each.after),
            reason=caller.reason,
            request_id=caller.request_id,
        )
        for each in effects
    ]


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
