"""How far relays are, over named statements. Without state, for both dialects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import document, fetch_one, fetch_value, has_rows, texts
from holdfast_streams.reader_store import LineToken
from holdfast_streams.relay.sink import BlockedState, LineEnd, Position


class Sent(msgspec.Struct, frozen=True):
    """What a line appended last, in which epoch that began after which place, and the late ones it has appended.

    Kept as JSON beside the position, and moved with it: what the stream has beyond it was appended by a process that
    did not come to say so, and what the stream lacks of it was lost there.
    """

    epoch: int
    place: int
    late: int
    sequence: int
    base: int
    retried: list[tuple[int, int, int]] = []
    """Of late ones: their own place, and the place and number they were sent under."""

    @property
    def position(self) -> Position:
        """Where the message is in its line."""
        return Position(self.epoch, self.place, self.late)


class RelayLine(msgspec.Struct, frozen=True):
    """A line of a relay as its holder finds it; `was_used` says whether the relay has ever sent something."""

    position: int
    epoch: int
    sent: str | None
    blocked: str | None
    was_used: bool

    def last_sent(self) -> Sent | None:
        """What was sent last in this epoch, if anything was."""
        if self.sent is None:
            return None
        found = msgspec.json.decode(self.sent, type=Sent)
        return found if found.epoch == self.epoch else None


def sent_at(tail: LineEnd, base: int, retried: Sequence[tuple[int, int, int]]) -> Sent:
    """Return what is to be remembered of an end of a line."""
    assert tail.position is not None
    return Sent(*tail.position, tail.sequence, base, list(retried))


class RelayStore:
    """Positions of relays, moved under the token of their line."""

    def line(self, held: LineToken) -> Op[RelayLine | None]:
        """Read where a relay is; None when another has the line. One statement."""
        return fetch_one(RelayLine, "relay_line", **msgspec.structs.asdict(held))

    def move(
        self,
        held: LineToken,
        start: int,
        end: int,
        sent: Sent | None,
        server: Instant | None = None,
    ) -> Op[bool]:
        """Move a position and what was sent; say whether it was still there. One statement.

        `server` is where the events were read up to it.
        """
        text = None if sent is None else msgspec.json.encode(sent).decode()
        given = {"from": start, "to": end, "sent": text, "server": server}
        return has_rows("relay_move", **msgspec.structs.asdict(held), **given)

    def block(
        self,
        held: LineToken,
        state: BlockedState,
        error: str,
        delay_ms: int,
        now: Instant | None = None,
    ) -> Op[int | None]:
        """Note why a line waits; return how often it was tried, None when the line is lost. One statement."""
        found: Op[int | None] = fetch_value(
            "relay_block",
            **msgspec.structs.asdict(held),
            state=state,
            error=error,
            delay_ms=delay_ms,
            now=now,
        )
        return found

    def unblock(self, held: LineToken) -> Op[None]:
        """Note that a line waits no more. One statement."""
        yield Statement("relay_unblock", msgspec.structs.asdict(held))

    def ids(self, line: int, places: Iterable[int]) -> Op[dict[int, str]]:
        """Read which events the log has at places. One statement."""
        params: dict[str, Value] = {"line": line, "places": document(list(places))}
        return {row[0]: row[1] for row in (yield Statement("relay_ids", params))}

    def parked_places(self, held: LineToken) -> Op[dict[int, str]]:
        """Read the ids of a line's parked events by their places. One statement."""
        rows = yield Statement("relay_parked", {"reader": held.reader, "line": held.line})
        return {row[0]: row[1] for row in rows}

    def unpark(self, held: LineToken, ids: Iterable[str]) -> Op[None]:
        """Remove parked events that the stream has, and release those held behind them."""
        yield Statement("relay_unpark", {**msgspec.structs.asdict(held), "ids": texts(ids)})
        yield Statement("parked_free", {"reader": held.reader, "line": None, "key": None})

    def range_of(self, line: int, after: int, upto: int) -> Op[tuple[int, int | None]]:
        """Read how many events the log has after a place up to another, and the line's first place. One statement."""
        params: dict[str, Value] = {"line": line, "after": after, "upto": upto}
        ((count, first),) = yield Statement("relay_range", params)
        return count, first

    def raise_epoch(self, reader: str, epoch: int) -> Op[None]:
        """Note an epoch that a stream has, so that the next one is after it. One statement."""
        yield Statement("relay_raise_epoch", {"reader": reader, "epoch": epoch})

    def rebase(self, reader: str) -> Op[list[int]]:
        """Have the lines go on in a new epoch whose streams are ahead; return them."""
        yield Statement("reader_new_epoch", {"reader": reader})
        rows = yield Statement("relay_rebase", {"reader": reader})
        return sorted(row[0] for row in rows)

    def recreate(self, reader: str) -> Op[list[int]]:
        """Let the lines create their stream that miss it; return them. One statement."""
        rows = yield Statement("relay_recreate", {"reader": reader})
        return sorted(row[0] for row in rows)


RELAYS = RelayStore()
