"""What operators do with readers of the log, written once for HTTP, pages and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.commands.change import Change, Effect
from holdfast.core.duration import format_span, pluralize
from holdfast.core.errors import nearest
from holdfast.core.instants import Instant, to_datetime
from holdfast.notify.base import CONTROL_HINT
from holdfast.storage.operation import Op
from holdfast_streams.errors import (
    LineNotFound,
    NothingToRebase,
    NothingToRecreate,
    ReaderIsRun,
    ReaderNotFound,
)
from holdfast_streams.reader_store import READERS, LineHolder, LineRecord, ReaderRecord
from holdfast_streams.relay.relay_store import RELAYS

MAX_WAITS = 16

BLOCKED_WORDS = {
    "away": "the broker is away",
    "no_leader": "the stream has no leader",
    "unfit": "the stream is missing or unfit",
    "full": "the stream is full",
    "ahead": "the stream is ahead of this database",
    "recreate": "the stream is to be created again",
}
"""Why lines of a relay wait, by `sink.BlockedState`."""


class LineWait(msgspec.Struct, frozen=True):
    """A line that waits for a transaction which may still commit a place in it."""

    line: int
    pid: int | None
    xid: str | None
    open_ms: int | None

    def __str__(self) -> str:
        who = "a prepared transaction" if self.pid is None else f"pid {self.pid}"
        what = f"transaction {self.xid} of {who}" if self.xid else who
        age = "" if self.open_ms is None else f", open {self.open_ms // 1000} s"
        return f"line {self.line} waits for {what}{age}"


class RelayBlock(msgspec.Struct, frozen=True):
    """Lines of a relay that wait for the same reason, and since when."""

    state: str
    lines: list[int]
    since: Instant
    blocked_ms: int
    error: str

    def __str__(self) -> str:
        since = to_datetime(self.since).strftime("%Y-%m-%d %H:%M:%S UTC")
        verb = "waits" if len(self.lines) == 1 else "wait"
        return (
            f"{pluralize(len(self.lines), 'line')} {verb}: {BLOCKED_WORDS[self.state]} since {since}"
            f" ({format_span(self.blocked_ms * 1000)}); {self.error}"
        )


class StreamFacts(msgspec.Struct, frozen=True):
    """A reader as it was at an instant: its lines, and what those wait for."""

    now: Instant
    reader: ReaderRecord
    lines: list[LineRecord]
    waits: list[LineWait]

    @property
    def lag(self) -> int:
        """How many places it is behind, in all lines together."""
        return sum(each.lag for each in self.lines)

    @property
    def lag_ms(self) -> int:
        """How old the oldest event is that it has not taken."""
        return max((each.lag_ms(self.now) for each in self.lines), default=0)

    @property
    def parked_count(self) -> int:
        """How many events are parked."""
        return sum(each.parked for each in self.lines)

    @property
    def state(self) -> str:
        """In one word: paused, running, blocked by its broker, or idle when no process runs it."""
        if self.reader.paused:
            return "paused"
        if not self.reader.members:
            return "idle"
        return "blocked" if self.blocks else "running"

    @property
    def blocks(self) -> list[RelayBlock]:
        """Why lines of a relay wait."""
        found: dict[str, list[LineRecord]] = {}
        for each in self.lines:
            if each.blocked is not None and each.blocked_since is not None:
                found.setdefault(each.blocked, []).append(each)
        return [
            _block(state, sorted(lines, key=lambda each: each.blocked_since or 0), self.now)
            for state, lines in found.items()
        ]

    @property
    def sentence(self) -> str:
        """How it is, in a sentence."""
        behind = (
            f"{pluralize(self.lag, 'place')} behind, the oldest {format_span(self.lag_ms * 1000)}"
            if self.lag
            else "up to date"
        )
        parts = [behind, *(str(each) for each in (*self.waits, *self.blocks))]
        if self.parked_count:
            parts.append(f"{pluralize(self.parked_count, 'event')} parked")
        if self.state in ("paused", "idle"):
            parts.insert(0, "paused" if self.state == "paused" else "run by no process")
        return "; ".join(parts)


def stream_facts(now: Instant | None = None) -> Op[list[StreamFacts]]:
    """Read every reader with its lines, and which transactions its lines wait for."""
    from holdfast.storage.store.params import resolve_now

    moment = yield from resolve_now(now)
    readers = yield from READERS.all(now)
    lines = yield from READERS.lines(now)
    gaps = sorted({each.line for each in lines if each.is_at_gap})[:MAX_WAITS]
    waits: dict[int, LineWait] = {}
    for line in gaps:
        holders = yield from READERS.holders(line)
        if holders:
            waits[line] = _wait(line, holders[0], moment)
    return [
        StreamFacts(
            moment,
            each,
            [line for line in lines if line.reader == each.name],
            [
                waits[line.line]
                for line in lines
                if line.reader == each.name and line.is_at_gap and line.line in waits
            ],
        )
        for each in readers
    ]


def _wait(line: int, holder: LineHolder, now: Instant) -> LineWait:
    open_ms = None if holder.since is None else max(0, now - holder.since) // 1000
    return LineWait(line, holder.pid, holder.xid, open_ms)


def _block(state: str, lines: Sequence[LineRecord], now: Instant) -> RelayBlock:
    first = lines[0]
    since = first.blocked_since or now
    blocked_ms = max(0, now - since) // 1000
    return RelayBlock(state, [each.line for each in lines], since, blocked_ms, first.error or "")


def find_reader(name: str) -> Op[ReaderRecord]:
    """Read a reader. Raises: ReaderNotFound."""
    readers = yield from READERS.all()
    for each in readers:
        if each.name == name:
            return each
    raise _no_such_reader(name, [each.name for each in readers])


def _no_such_reader(name: str, known: Iterable[str]) -> ReaderNotFound:
    near = nearest(name, list(known))
    return ReaderNotFound(f"there is no reader {name[:60]!r}", help=near or None)


def pause_reader(name: str, paused: bool) -> Op[Change[None]]:
    """Pause or resume a reader; blocks under way are rolled back. Raises: ReaderNotFound."""
    yield from find_reader(name)
    has_changed = yield from READERS.pause(name, paused)
    effects = [Effect(_target(name), {"paused": not paused}, {"paused": paused})]
    return Change(None, effects if has_changed else (), [CONTROL_HINT])


def read_lines(name: str, line: int | None) -> Op[list[LineRecord]]:
    """Read a reader's lines, of which one may be named. Raises: ReaderNotFound, LineNotFound."""
    yield from find_reader(name)
    found = [each for each in (yield from READERS.lines()) if each.reader == name]
    if line is not None and line not in {each.line for each in found}:
        last = max((each.line for each in found), default=0)
        raise LineNotFound(f"{name} has no line {line}", help=f"its lines are 0 to {last}")
    return found


def rewind_reader(
    name: str, since: Instant | None, line: int | None
) -> Op[Change[list[tuple[int, int]]]]:
    """Set a reader back to the first event of an instant, or forward to the end. Raises: as `read_lines`."""
    before = yield from read_lines(name, line)
    moved = yield from READERS.rewind(name, since, line)
    was = {str(each.line): each.position for each in before}
    after = {str(number): position for number, position in moved}
    changed = {number: was.get(number) for number in after}
    effect = Effect(_target(name), {"positions": changed}, {"positions": after})
    return Change(moved, [effect], [CONTROL_HINT])


def retry_parked(name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
    """Have parked events taken again, in order, with those held behind them. Raises: ReaderNotFound."""
    yield from find_reader(name)
    retried = yield from READERS.retry_parked(name, ids)
    effects = [Effect(_target(name), None, {"retried": retried})] if retried else []
    return Change(retried, effects, [CONTROL_HINT])


def skip_parked(name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
    """Give events up that failed, and release those held behind them. Raises: ReaderNotFound."""
    yield from find_reader(name)
    skipped = yield from READERS.skip_parked(name, ids)
    effects = [Effect(_target(name), {"parked": skipped}, None)] if skipped else []
    return Change(skipped, effects, [CONTROL_HINT])


def rebase_relay(name: str) -> Op[Change[list[int]]]:
    """Have lines go on in a new epoch whose streams have events that this database does not; return the lines.

    Raises: ReaderNotFound, NothingToRebase.
    """
    yield from find_reader(name)
    before = yield from READERS.lines()
    ahead = [each for each in before if each.reader == name and each.blocked == "ahead"]
    if not ahead:
        raise NothingToRebase(f"no line of {name} waits because its stream is ahead")
    lines = yield from RELAYS.rebase(name)
    reader = yield from find_reader(name)
    was = {str(each.line): each.error for each in ahead}
    effect = Effect(_target(name), {"ahead": was}, {"epoch": reader.epoch, "lines": lines})
    return Change(lines, [effect], [CONTROL_HINT])


def recreate_stream(name: str) -> Op[Change[list[int]]]:
    """Have a relay create its stream that is gone, and send again what the log still has; return the lines.

    Raises: ReaderNotFound, NothingToRecreate.
    """
    yield from find_reader(name)
    before = yield from READERS.lines()
    missing = [each for each in before if each.reader == name and each.blocked == "unfit"]
    if not missing:
        raise NothingToRecreate(f"no line of {name} waits because its stream is missing")
    lines = yield from RELAYS.recreate(name)
    was = {str(each.line): each.error for each in missing}
    effect = Effect(_target(name), {"unfit": was}, {"recreated": lines})
    return Change(lines, [effect], [CONTROL_HINT])


def remove_reader(name: str) -> Op[Change[None]]:
    """Forget a reader with its positions and what it parked. Raises: ReaderNotFound, ReaderIsRun."""
    reader = yield from find_reader(name)
    if reader.members:
        raise ReaderIsRun(f"{name} is run by {reader.members} processes")
    yield from READERS.remove(name)
    return Change(None, [Effect(_target(name), reader)], [CONTROL_HINT])


def _target(name: str) -> str:
    return f"stream {name}"


def line_json(line: LineRecord, now: Instant) -> dict[str, Any]:
    """Return a line for programs."""
    from holdfast.admin.serializers import plain, redact_text

    return {
        **plain(line),
        "lag": line.lag,
        "lag_ms": line.lag_ms(now),
        "error": redact_text(line.error),
    }
