"""Inboxes, what they received and what they parked, over named statements. Without state, for both dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
    fetch_value,
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


class InboxLine(msgspec.Struct, frozen=True):
    """A line that this process holds from now on, and the token of the process that lost it."""

    line: str
    token: str
    place: str | None
    deaths: int
    old_token: str | None


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
            "inbox_remember", inbox=inbox, ids=texts(sorted(set(ids))), dedupe_ms=dedupe_ms, now=now
        )

    def forget_seen(self, limit: int, now: Instant | None) -> Op[int]:
        """Remove some records that have outlived their time."""
        return count_rows("inbox_forget_seen", limit=limit, now=now)

    def park(
        self,
        id: str,
        raw: RawMessage,
        body: str,
        error: str | None,
        attempts: int,
        now: Instant | None,
        key: str | None = None,
    ) -> Op[None]:
        """Keep a message, with its body as it is stored: for an operator if it has an error, else behind its key."""
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
            "state": "due" if error is None else "failed",
            "key": key,
        }
        yield Statement("inbox_park", params)

    def parked_keys(self, inbox: str) -> Op[set[str]]:
        """Return the keys whose messages wait behind a parked one."""
        return fetch_set("inbox_parked_keys", inbox=inbox)

    def begin_due(self, inbox: str, error: str, now: Instant | None) -> Op[DueMessage | None]:
        """Begin the first message that is to be taken again: it has failed, with this error, until it was taken."""
        return fetch_one(DueMessage, "inbox_due", inbox=inbox, error=error, now=now)

    def with_due(self) -> Op[set[str]]:
        """Return the inboxes with messages that are to be taken again."""
        return fetch_set("inbox_has_due")

    def unpark(self, id: str) -> Op[bool]:
        """Remove a message that was taken after all; False when it was gone."""
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
        yield Statement("inbox_remove_lines", {"inbox": inbox})

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

    # ---- Lines, of inboxes that keep the order of keys

    def begin_lines(self, inbox: str, lines: Sequence[str]) -> Op[None]:
        """See to it that lines are there; those that are stay where they are."""
        yield Statement("inbox_line_begin", {"inbox": inbox, "lines": texts(lines)})

    def members(self, inbox: str, now: Instant | None) -> Op[list[str]]:
        """Return the processes that read an inbox."""
        return fetch_column("inbox_member_list", inbox=inbox, now=now)

    def claim_lines(
        self,
        inbox: str,
        lines: Sequence[str],
        worker: str,
        token: str,
        limit: int,
        lease_ms: int,
        now: Instant | None,
    ) -> Op[list[InboxLine]]:
        """Take lines that nobody holds. One statement."""
        return fetch(
            InboxLine,
            "inbox_line_claim",
            inbox=inbox,
            lines=texts(lines),
            worker=worker,
            token=token,
            limit=limit,
            lease_ms=lease_ms,
            now=now,
        )

    def renew_lines(
        self, inbox: str, tokens: Mapping[str, str], lease_ms: int, now: Instant | None
    ) -> Op[set[str]]:
        """Extend leases, by line and token; return the lines that are still held. One statement."""
        return fetch_set(
            "inbox_line_renew", inbox=inbox, rows=_rows(tokens), lease_ms=lease_ms, now=now
        )

    def release_lines(self, inbox: str, tokens: Mapping[str, str]) -> Op[None]:
        """Give lines back. One statement."""
        yield Statement("inbox_line_release", {"inbox": inbox, "rows": _rows(tokens)})

    def line_place(self, inbox: str, line: str, token: str) -> Op[list[str | None]]:
        """Read how far a line is, for the holder of a token: nothing when another holds it. One statement."""
        found: Op[Any] = fetch_column("inbox_line_place", inbox=inbox, line=line, token=token)
        return found

    def move_line(self, inbox: str, line: str, token: str, start: str | None, end: str) -> Op[bool]:
        """Move a line under its token; say whether it was still there. One statement."""
        at: dict[str, Value] = {"inbox": inbox, "line": line, "token": token}
        return has_rows("inbox_line_move", **at, **{"from": start, "to": end})

    def try_line(self, inbox: str, line: str, token: str) -> Op[int | None]:
        """Count a try of a line's next message, before it; None when another holds the line. One statement."""
        found: Op[int | None] = fetch_value("inbox_line_try", inbox=inbox, line=line, token=token)
        return found


def _rows(tokens: Mapping[str, str]) -> Value:
    return document([{"line": line, "token": token} for line, token in tokens.items()])


INBOXES = InboxStore()
