"""Inboxes for HTTP, pages and the command line: what there is, and what operators do with parked messages."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from holdfast.admin.access import Caller
from holdfast.admin.serializers import plain, redact_text
from holdfast.commands.change import Change, Effect
from holdfast.core.errors import nearest
from holdfast.storage.operation import Op
from holdfast_streams.errors import InboxIsRun, InboxNotFound
from holdfast_streams.inbox.inbox_store import (
    INBOXES,
    InboxRecord,
    ParkedMessage,
    ParkedMessageState,
)
from holdfast_streams.parked_admin import ParkedAdmin


def inbox_json(inbox: InboxRecord) -> dict[str, Any]:
    """Return an inbox for programs."""
    return {**plain(inbox), "state": inbox.state, "error": redact_text(inbox.error)}


def find_inbox(name: str) -> Op[InboxRecord]:
    """Read an inbox. Raises: InboxNotFound."""
    found = yield from INBOXES.all()
    for each in found:
        if each.name == name:
            return each
    near = nearest(name, [each.name for each in found])
    raise InboxNotFound(f"there is no inbox {name[:60]!r}", help=near or None)


def retry_messages(name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
    """Have parked messages taken again. Raises: InboxNotFound."""
    yield from find_inbox(name)
    retried = yield from INBOXES.retry_parked(name, ids)
    effects = [Effect(_target(name), None, {"retried": retried})] if retried else []
    return Change(retried, effects)


def skip_messages(name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
    """Give parked messages up. Raises: InboxNotFound."""
    yield from find_inbox(name)
    skipped = yield from INBOXES.skip_parked(name, ids)
    effects = [Effect(_target(name), {"parked": skipped}, None)] if skipped else []
    return Change(skipped, effects)


def remove_inbox(name: str) -> Op[Change[None]]:
    """Forget an inbox and what it parked. Raises: InboxNotFound, InboxIsRun."""
    inbox = yield from find_inbox(name)
    if inbox.members:
        raise InboxIsRun(f"{name} is read by {inbox.members} processes")
    yield from INBOXES.remove(name)
    return Change(None, [Effect(_target(name), inbox)])


def _target(name: str) -> str:
    return f"inbox {name}"


class InboxAdmin(ParkedAdmin):
    """What can be asked about inboxes and done with them."""

    noun = command = "inbox"

    def find_op(self, name: str) -> Op[InboxRecord]:
        return find_inbox(name)

    def parked_op(
        self, name: str, state: ParkedMessageState | None, limit: int
    ) -> Op[builtins.list[ParkedMessage]]:
        return INBOXES.parked_messages(name, state, limit)

    def retry_op(self, name: str, ids: Sequence[str] | None) -> Op[Change[builtins.list[str]]]:
        return retry_messages(name, ids)

    def skip_op(self, name: str, ids: Sequence[str] | None) -> Op[Change[builtins.list[str]]]:
        return skip_messages(name, ids)

    async def list(self, caller: Caller) -> list[InboxRecord]:
        """Read every inbox."""
        return await self._gateway.read(caller, "inbox.list", lambda store: INBOXES.all())

    async def remove(self, caller: Caller, name: str) -> None:
        """Forget an inbox. Raises: InboxNotFound, InboxIsRun."""
        await self._gateway.run(caller, "inbox.remove", lambda store: remove_inbox(name))
