"""Readers of the log, their lines and what they parked, over named statements. Without state, for both dialects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import (
    document,
    fetch,
    fetch_column,
    fetch_value,
    has_rows,
    resolve_now,
    texts,
)

ReaderKind = Literal["consumer", "relay"]
ParkedState = Literal["failed", "held", "due"]

EARLIEST = 0
"""As an instant: all that is in the log."""

SUSPECTED_AFTER = 3
"""After so many processes that ended with a line, its events are taken one by one: one of them may have ended those."""


class ReaderRecord(msgspec.Struct, frozen=True):
    """A registered reader; `members` are the processes that run it."""

    name: str
    kind: str
    paused: bool
    epoch: int
    created_at: Instant
    seen_at: Instant
    patterns: list[str]
    members: int
    target: str | None = None


class LineRecord(msgspec.Struct, frozen=True):
    """How far a reader is in a line; `next` is the first place that it has not read, if there is one."""

    reader: str
    line: int
    position: int
    head: int
    next: int | None
    next_at: Instant | None
    worker: str | None
    failures: int
    retry_at: Instant | None
    error: str | None
    parked: int
    blocked: str | None = None
    blocked_since: Instant | None = None

    @property
    def lag(self) -> int:
        """How many places it is behind."""
        return self.head - self.position

    def lag_ms(self, now: Instant) -> int:
        """How old the oldest event is that it has not read."""
        return 0 if self.next_at is None else max(0, now - self.next_at) // 1000

    @property
    def is_at_gap(self) -> bool:
        """Whether the next place is missing while later ones are there."""
        return self.next is not None and self.next > self.position + 1


class ParkedEvent(msgspec.Struct, frozen=True):
    """An event that a reader could not take."""

    reader: str
    line: int
    place: int
    state: str
    event: str
    key: str | None
    id: str
    at: Instant
    error: str | None
    attempts: int
    parked_at: Instant


class ParkedTotals(msgspec.Struct, frozen=True):
    """How many events of a reader are parked in a state."""

    reader: str
    state: str
    events: int


class ClaimedLine(msgspec.Struct, frozen=True):
    """A line that this process holds from now on, and the token of the process that lost it."""

    reader: str
    line: int
    position: int
    fence: int
    token: str
    failures: int
    wait_ms: int | None
    old_token: str | None


class ReadBlock(NamedTuple):
    """What was read of a line: up to which place it is dense, the last place seen, and the events as JSON.

    `server` is when the server was started that it was read on; None in a file.
    """

    upto: int | None
    seen: int | None
    text: str | None
    parked_keys: frozenset[str]
    has_due: bool
    server: Instant | None


class LineHolder(NamedTuple):
    """A transaction that may still commit a place of a line."""

    transaction: str
    server: str
    pid: int | None
    xid: str | None
    since: Instant | None


class LineToken(msgspec.Struct, frozen=True):
    """A line of a reader under a token."""

    reader: str
    line: int
    token: str


class LogPart(msgspec.Struct, frozen=True):
    """A part of the log in time: when it began, when the next one did, and whether every reader has passed it."""

    part: int
    begins_at: Instant
    ends_at: Instant | None
    is_passed: bool


class ReaderStore:
    """Readers: who they are, how far they are, and what operators do with them."""

    def register(
        self,
        reader: str,
        kind: ReaderKind,
        patterns: Sequence[str],
        since: Instant | None,
        now: Instant | None = None,
        target: str | None = None,
    ) -> Op[None]:
        """Register a reader; a new one begins at `since`, or with what comes from now on. `target` is a relay's."""
        known: dict[str, Value] = {"reader": reader, "kind": kind, "target": target, "now": now}
        yield Statement("reader_register", known)
        wanted = texts(patterns)
        yield Statement("reader_forget_patterns", {"reader": reader, "patterns": wanted})
        yield Statement("reader_add_patterns", {"reader": reader, "patterns": wanted})
        yield Statement("reader_begin", {"reader": reader, "since": since})

    def all(self, now: Instant | None = None) -> Op[list[ReaderRecord]]:
        """Read all readers. One statement."""
        return fetch(ReaderRecord, "reader_list", now=now)

    def lines(self, now: Instant | None = None) -> Op[list[LineRecord]]:
        """Read how far each reader is in each line. One statement."""
        return fetch(LineRecord, "reader_lines", now=now)

    def holders(self, line: int) -> Op[list[LineHolder]]:
        """Read which transactions may still commit a place of a line, the oldest first. One statement."""
        return [LineHolder(*row) for row in (yield Statement("line_holders", {"line": str(line)}))]

    def pause(self, reader: str, paused: bool) -> Op[bool]:
        """Pause or resume a reader; say whether that changed something. What is under way is refused."""
        has_changed = yield from has_rows("reader_pause", reader=reader, paused=paused)
        if has_changed and paused:
            yield Statement("reader_let_go", {"reader": reader})
        return has_changed

    def rewind(
        self, reader: str, since: Instant | None, line: int | None = None
    ) -> Op[list[tuple[int, int]]]:
        """Set a reader back or forward, in one line or in all; return the new positions by line."""
        yield Statement("reader_new_epoch", {"reader": reader})
        moved = yield Statement("reader_rewind", {"reader": reader, "since": since, "line": line})
        return sorted((row[0], row[1]) for row in moved)

    def remove(self, reader: str) -> Op[bool]:
        """Remove a reader with its positions and what it parked."""
        for name in ("reader_remove_patterns", "reader_remove_positions", "reader_remove_parked"):
            yield Statement(name, {"reader": reader})
        return (yield from has_rows("reader_remove", reader=reader))

    def parked_events(
        self, reader: str | None, state: ParkedState | None, limit: int
    ) -> Op[list[ParkedEvent]]:
        """Read parked events, by reader, line and place. One statement."""
        return fetch(ParkedEvent, "parked_list", reader=reader, state=state, limit=limit)

    def parked_totals(self) -> Op[list[ParkedTotals]]:
        """Count parked events by reader and state. One statement."""
        return fetch(ParkedTotals, "parked_totals")

    def retry_parked(self, reader: str, ids: Sequence[str] | None) -> Op[list[str]]:
        """Make parked events due again, all or some, with those held behind them; return their ids. One statement."""
        wanted = None if ids is None else texts(ids)
        return fetch_column("parked_retry", reader=reader, ids=wanted)

    def skip_parked(self, reader: str, ids: Sequence[str] | None) -> Op[list[str]]:
        """Remove events that failed, all or some, and release those held behind them; return the ids."""
        wanted = None if ids is None else texts(ids)
        skipped = yield from fetch_column("parked_skip", reader=reader, ids=wanted)
        yield Statement("parked_free", {"reader": reader, "line": None, "key": None})
        return skipped

    def parts(self) -> Op[list[LogPart]]:
        """Read the parts of the log, the oldest first; SQLite has none. One statement."""
        return fetch(LogPart, "log_parts")

    def begin_part(self, part: int, now: Instant | None = None) -> Op[None]:
        """Have events go to a part, whose partition is there. One statement."""
        yield Statement("log_part_begin", {"part": part, "now": now})

    def end_part(self, part: int) -> Op[None]:
        """Forget a part, whose partition was dropped. One statement."""
        yield Statement("log_part_end", {"part": part})

    def trim(self, keep_ms: int, limit: int, now: Instant | None = None) -> Op[int]:
        """Remove old events that every reader has passed, a batch of them; return how many. One statement."""
        rows = yield Statement("log_trim", {"keep_ms": keep_ms, "limit": limit, "now": now})
        return len(rows)


class LineStore:
    """Lines as the processes see them that read: shared out, leased, read and advanced under a token."""

    def join(
        self, worker: str, readers: Iterable[str], lease_ms: int, now: Instant | None = None
    ) -> Op[list[tuple[str, str]]]:
        """Say that a process runs these readers; return which processes run which reader that is not paused."""
        params: dict[str, Value] = {"worker": worker, "lease_ms": lease_ms, "now": now}
        yield Statement("member_join", {**params, "readers": texts(sorted(readers))})
        yield Statement("member_purge", {"now": now})
        return (yield from self.members(now))

    def members(self, now: Instant | None = None) -> Op[list[tuple[str, str]]]:
        """Read which processes run which reader that is not paused. One statement."""
        return [(row[0], row[1]) for row in (yield Statement("member_list", {"now": now}))]

    def leave(self, worker: str) -> Op[None]:
        """Say that a process runs no readers any more. One statement."""
        yield Statement("member_leave", {"worker": worker})

    def renew(
        self, lines: Sequence[LineToken], lease_ms: int, now: Instant | None = None
    ) -> Op[set[tuple[str, int]]]:
        """Extend leases; return those that still exist. One statement."""
        params: dict[str, Value] = {"rows": document(lines), "lease_ms": lease_ms, "now": now}
        return {(row[0], row[1]) for row in (yield Statement("line_renew", params))}

    def claim(
        self,
        reader: str,
        worker: str,
        token: str,
        limit: int,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[list[ClaimedLine]]:
        """Take lines of a reader that nobody holds. One statement."""
        return fetch(
            ClaimedLine,
            "line_claim",
            reader=reader,
            worker=worker,
            token=token,
            limit=limit,
            lease_ms=lease_ms,
            suspected=SUSPECTED_AFTER,
            now=now,
        )

    def release(self, lines: Sequence[LineToken]) -> Op[None]:
        """Give lines back. One statement."""
        yield Statement("line_release", {"rows": document(lines)})

    def next_expiry_ms(
        self, worker: str, readers: Iterable[str], now: Instant | None = None
    ) -> Op[int | None]:
        """Read in how many milliseconds the next lease of another process ends. One statement."""
        found: Op[int | None] = fetch_value(
            "line_next_expiry", worker=worker, readers=texts(readers), now=now
        )
        return found

    def news(self, worker: str) -> Op[list[tuple[str, int]]]:
        """Read in which lines of a process there is something to do. One statement."""
        return [(row[0], row[1]) for row in (yield Statement("line_news", {"worker": worker}))]

    def read(self, reader: str, line: int, after: int, settled: int, limit: int) -> Op[ReadBlock]:
        """Read what follows a place. One statement; a second one where places are missing, all of a block even.

        Concurrency: what is returned is dense but for places up to `settled`, which the caller knows to be rolled back.
        """
        block: dict[str, Value] = {"reader": reader, "line": line, "after": after, "limit": limit}
        ((seen, count, text, keys, has_due, server),) = yield Statement("line_read", block)
        upto = seen
        if seen is not None and seen - after != count and (seen > settled or not count):
            dense = yield Statement("line_read_dense", {**block, "settled": settled})
            ((upto, seen, text, keys, has_due, server),) = dense
        parked: list[Any] = msgspec.json.decode(keys) if keys else []
        keys = frozenset(each for each in parked if each is not None)
        return ReadBlock(upto, seen, text, keys, bool(has_due), server)

    def position(self, held: LineToken) -> Op[int | None]:
        """Read where a reader is, for the holder of a token; None when another has the line. One statement."""
        found: Op[int | None] = fetch_value("line_position", **msgspec.structs.asdict(held))
        return found

    def advance(
        self, held: LineToken, start: int, end: int, server: Instant | None = None
    ) -> Op[bool]:
        """Move a position under its token; say whether it was still there. One statement.

        `server` is where the events were read up to it.
        """
        places = {"from": start, "to": end}
        return has_rows("line_advance", **msgspec.structs.asdict(held), **places, server=server)

    def fail(
        self,
        held: LineToken,
        failures: int,
        error: str,
        delay_ms: int = 0,
        now: Instant | None = None,
    ) -> Op[bool]:
        """Note how often the events at a position have failed by now; False when the line is lost. One statement."""
        return has_rows(
            "line_fail",
            **msgspec.structs.asdict(held),
            failures=failures,
            error=error,
            delay_ms=delay_ms,
            now=now,
        )

    def park(
        self,
        held: LineToken,
        state: ParkedState,
        places: Sequence[int],
        error: str | None = None,
        attempts: int = 0,
        now: Instant | None = None,
    ) -> Op[None]:
        """Keep events of the log for an operator; in the transaction that moves the position. One statement."""
        params: dict[str, Value] = {
            "reader": held.reader,
            "line": held.line,
            "state": state,
            "places": document(places),
            "error": error,
            "attempts": attempts,
            "now": now,
        }
        yield Statement("parked_put", params)

    def first_due(self, held: LineToken) -> Op[str | None]:
        """Read the first parked event of a line that is due again, as a block of one. One statement."""
        found: Op[str | None] = fetch_value("parked_due", reader=held.reader, line=held.line)
        return found

    def unpark(self, held: LineToken, place: int, key: str | None) -> Op[bool]:
        """Remove a parked event that was taken, under its line's token; with a key, release those held behind it."""
        is_done = yield from has_rows("parked_done", **msgspec.structs.asdict(held), place=place)
        if key is not None:
            yield from self.free_key(held, key)
        return is_done

    def free_key(self, held: LineToken, key: str) -> Op[None]:
        """Release parked events of a key that are held behind nothing any more. One statement."""
        at: dict[str, Value] = {"reader": held.reader, "line": held.line}
        yield Statement("parked_free", {**at, "key": key})

    def park_again(
        self,
        held: LineToken,
        place: int,
        error: str,
        key: str | None,
        tries: int = 0,
        now: Instant | None = None,
    ) -> Op[None]:
        """Note that a parked event is tried so often more, or failed; with a key, those behind it are held again."""
        at: dict[str, Value] = {"reader": held.reader, "line": held.line, "place": place}
        yield Statement("parked_failed", {**at, "error": error, "tries": tries, "now": now})
        if key is not None:
            yield Statement("parked_hold_key", {**at, "key": key})


READERS = ReaderStore()
LINES = LineStore()


def resolve_since(since_ms_ago: int | None, since: Instant | None) -> Op[Instant | None]:
    """Return the instant from which a reader begins: so long ago by the database's clock, or the one given."""
    if since_ms_ago is None:
        return since
    return (yield from resolve_now(None)) - since_ms_ago * 1000
