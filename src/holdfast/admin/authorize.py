"""The gateway of HTTP, pages and the command line: checks the caller's role, runs a read or a command, audits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.admin.roles import Principal, check, may
from holdfast.admin.serializers import plain
from holdfast.commands.change import Change, Effect, with_audit
from holdfast.core.records import AuditRecord
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
    """Who is calling, in which request, and why."""

    principal: Principal
    request_id: str | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """The caller's name."""
        return self.principal.name

    def may(self, action: str) -> bool:
        """Whether the caller's role allows an action."""
        return may(self.principal, action)


class Gateway:
    """Runs reads and commands for callers. A read has a time limit; a command and its audit are one transaction."""

    def __init__(self, app: Holdfast, read_timeout_ms: int = READ_TIMEOUT_MS) -> None:
        self.app = app
        self._read_timeout_ms = read_timeout_ms

    @property
    def store(self) -> Store:
        """The store's meaning."""
        return self.app.database.store

    async def read(self, caller: Caller, action: str, op: Callable[[Store], Op[T]]) -> T:
        """Check the caller's role and read. Raises: Refused, DatabaseBusy, DatabaseUnreachable."""
        check(caller.principal, action)
        return await self.read_unchecked(op)

    async def read_unchecked(self, op: Callable[[Store], Op[T]]) -> T:
        """Read for the service itself, such as who the caller is. Raises: DatabaseBusy, DatabaseUnreachable."""
        return await self.app.database.read_async(op(self.store), self._read_timeout_ms)

    async def run(
        self, caller: Caller, action: str, command: Callable[[Store], Op[Change[T]]]
    ) -> T:
        """Check the caller's role, run a command with its audit, and notify after the commit. Raises: Refused."""
        check(caller.principal, action)
        op = with_audit(self.store, command(self.store), partial(audit_entries, caller, action))
        change = await self.app.database.run_async(op)
        if change.hints:
            self.app.notifier.send(change.hints)
        self.app.tell(change.events)
        return change.answer

    async def record(self, caller: Caller, action: str, effect: Effect) -> None:
        """Audit something that was done outside a command."""
        entries = audit_entries(caller, action, [effect])
        await self.app.database.run_async(self.store.audit.append(entries))


def audit_entries(caller: Caller, action: str, effects: Sequence[Effect]) -> list[AuditRecord]:
    """Return the audit entries of a command's effects."""
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
    if value is None:
        return None
    fields = plain(value) if isinstance(value, msgspec.Struct) else value
    return msgspec.json.encode(fields).decode()
