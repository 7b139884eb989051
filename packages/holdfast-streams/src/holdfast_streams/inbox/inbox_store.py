"""Inboxes, what they received and what they parked, over named statements. Without state, for both dialects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import (
    count_rows,
    document,
    fetch,
    fetch_column,
    fetch_one,
    fetch_set,
    has_rows,
    texts,
)
from holdfast_streams.inbox.message import RawMessage

InboxKind = Literal["http", "jetstream", "redis"]
ParkedMessageState = Literal["failed", "due"]


class InboxRecord(msgspec.Struct, frozen=True):
    """A registered inbox; `members` are the processes that read its broker, and `error` why one cannot."""

    name: str
    kind: str
    source: str
    created_at: Instant
    seen_at: Instant
    members: int
    parked: int
    error: str | None

    @property
    def state(self) -> str:
        """In one word: open for webhooks; away, running or idle for a broker."""
        if self.kind == "http":
            return "open"
        if self.error is not None:
            return "away"
        return "running" if self.members else "idle"


class ParkedMessage(msgspec.Struct, frozen=True):
    """A message that could not be taken."""

    id: str
    inbox: str
    message_id: str
    state: str
    subject: str | None
    error: str | None
    attempts: int
    received_at: Instant
    parked_at: Instant


class DueMessage(msgspec.Struct, frozen=True):
    """A parked message that is to be taken again, as it is stored."""

    id: str
    message_id: str
    subject: str | None
    body: str
    headers: dict[str, str]
    attempts: int
    received_at: Instant


class InboxStore:
    """Operations on inboxes."""

    def register(self, name: str, kind: InboxKind, source: str, now: Instant | None) -> Op[None]:
        """Register an inbox, or note that it was seen."""
        yield Statement(
            "inbox_register", {"inbox": name, "kind": kind, "source": source, "now": now}
        )

    def all(self, now: Instant | None = None) -> Op[list[InboxRecord]]:
        """Read every inbox."""
        return fetch(InboxRecord, "inbox_list", now=now)

    def remember(
        self, inbox: str, ids: Sequence[str], dedupe_ms: int, now: Instant | None
    ) -> Op[set[str]]:
        """Note messages as received, and return which of them are new. In the transaction of their handler."""
        return fetch_set(
            "inbox_remember",
            inbox=inbox,
            ids=texts(sorted(set(ids))),
            dedupe_ms=dedupe_ms,
            now=now,
        )

    def forget_seen(self, limit: int, now: Instant | None) -> Op[int]:
        """Remove some records that have outlived their time."""
        return count_rows("inbox_forget_seen", limit=limit, now=now)

    def park(
        self, id: str, raw: RawMessage, body: str, error: str, attempts: int, now: Instant | None
    ) -> Op[None]:
        """Keep a message for an operator, with its body as it is stored."""
        params: dict[str, Value] = {
            "id": id,
            "inbox": raw.inbox,
            "message_id": raw.id,
            "subject": raw.subject,
            "body": body,
            "headers": document(raw.headers),
            "error": error,
            "attempts": attempts,
            "received_at": raw.received_us,
            "now": now,
        }
        yield Statement("inbox_park", params)

    def first_due(self, inbox: str) -> Op[DueMessage | None]:
        """Read the first message that is to be taken again, and lock it for this transaction."""
        return fetch_one(DueMessage, "inbox_due", inbox=inbox)

    def with_due(self) -> Op[set[str]]:
        """Return the inboxes with messages that are to be taken again."""
        return fetch_set("inbox_has_due")

    def unpark(self, id: str) -> Op[bool]:
        """Remove a message that was taken after all; False when it was not due any more."""
        return has_rows("inbox_unpark", id=id)

    def park_again(self, id: str, error: str, now: Instant | None) -> Op[bool]:
        """Note that a message failed again."""
        return has_rows("inbox_park_again", id=id, error=error, now=now)

    def parked_messages(
        self, inbox: str | None, state: ParkedMessageState | None, limit: int
    ) -> Op[list[ParkedMessage]]:
        """Read parked messages, oldest first."""
        return fetch(ParkedMessage, "inbox_parked_list", inbox=inbox, state=state, limit=limit)

    def retry_parked(self, inbox: str, ids: Sequence[str] | None) -> Op[list[str]]:
        """Have parked messages taken again: those with the ids, or all."""
        return fetch_column("inbox_retry", inbox=inbox, ids=None if ids is None else texts(ids))

    def skip_parked(self, inbox: str, ids: Sequence[str] | None) -> Op[list[str]]:
        """Give parked messages up."""
        return fetch_column("inbox_skip", inbox=inbox, ids=None if ids is None else texts(ids))

    def remove(self, inbox: str) -> Op[None]:
        """Forget an inbox and what it parked; what it received is forgotten when its time is over."""
        yield Statement("inbox_remove", {"inbox": inbox})
        yield Statement("inbox_remove_parked", {"inbox": inbox})

    def beat(
        self, inbox: str, worker: str, lease_ms: int, error: str | None, now: Instant | None
    ) -> Op[None]:
        """Note that a process reads an inbox's broker, or why it cannot."""
        params: dict[str, Value] = {"inbox": inbox, "worker": worker, "lease_ms": lease_ms}
        yield Statement("inbox_member_beat", {**params, "error": error, "now": now})

    def leave(self, worker: str) -> Op[None]:
        """Note that a process reads no more."""
        yield Statement("inbox_member_leave", {"worker": worker})

    def purge_members(self, now: Instant | None) -> Op[None]:
        """Forget processes that are gone."""
        yield Statement("inbox_member_purge", {"now": now})


INBOXES = InboxStore()
