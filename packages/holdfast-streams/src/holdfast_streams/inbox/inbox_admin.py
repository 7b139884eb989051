"""Inboxes for HTTP, pages and the command line: what there is, and what operators do with parked messages."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, redact_text
from holdfast.commands.change import Change, Effect
from holdfast.core.errors import nearest
from holdfast.core.ids import parse_id
from holdfast.storage.operation import Op
from holdfast_streams.errors import InboxIsRun, InboxNotFound
from holdfast_streams.inbox.inbox_store import (
    INBOXES,
    InboxRecord,
    ParkedMessage,
    ParkedMessageState,
)


def inbox_json(inbox: InboxRecord) -> dict[str, Any]:
    """Return an inbox for programs."""
    return {**plain(inbox), "state": inbox.state, "error": redact_text(inbox.error)}


def parked_message_json(message: ParkedMessage) -> dict[str, Any]:
    """Return a parked message for programs, without its body."""
    return {**plain(message), "error": redact_text(message.error)}


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


class InboxAdmin(NounAdmin):
    """What can be asked about inboxes and done with them."""

    async def list(self, caller: Caller) -> list[InboxRecord]:
        """Read every inbox."""
        return await self._gateway.read(caller, "inbox.list", lambda store: INBOXES.all())

    async def parked_messages(
        self,
        caller: Caller,
        name: str,
        state: ParkedMessageState | None = None,
        limit: int = 50,
    ) -> builtins.list[ParkedMessage]:
        """Read the parked messages of an inbox. Raises: InboxNotFound."""
        await self._gateway.read(caller, "inbox.list", lambda store: find_inbox(name))
        return await self._gateway.read(
            caller, "inbox.list", lambda store: INBOXES.parked_messages(name, state, limit)
        )

    async def retry(self, caller: Caller, name: str, ids: Sequence[str] = ()) -> builtins.list[str]:
        """Have parked messages taken again, all or some. Raises: InboxNotFound, InvalidId."""
        wanted = _ids(ids)
        return await self._gateway.run(
            caller, "inbox.retry", lambda store: retry_messages(name, wanted)
        )

    async def skip(self, caller: Caller, name: str, ids: Sequence[str] = ()) -> builtins.list[str]:
        """Give parked messages up, all or some. Raises: InboxNotFound, InvalidId."""
        wanted = _ids(ids)
        return await self._gateway.run(
            caller, "inbox.skip", lambda store: skip_messages(name, wanted)
        )

    async def remove(self, caller: Caller, name: str) -> None:
        """Forget an inbox. Raises: InboxNotFound, InboxIsRun."""
        await self._gateway.run(caller, "inbox.remove", lambda store: remove_inbox(name))


def _ids(ids: Sequence[str]) -> list[str] | None:
    return [str(parse_id(each)) for each in ids] or None
