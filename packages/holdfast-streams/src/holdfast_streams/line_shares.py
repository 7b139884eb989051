"""How lines are shared out: each process that runs a reader has its part, and takes over what others leave or lose.

Every process works out the same shares from the same list of members. One that holds more than its share gives the rest
back after the block at hand; a lease that was not renewed is taken by those who hold less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import Held
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.params import resolve_now
from holdfast_streams.reader_store import LINES, READERS, ClaimedLine, LineRecord, LineToken


class Sharing(msgspec.Struct, frozen=True):
    """Who takes part, and who holds what. A heartbeat that finds the same as the last one changes nothing."""

    members: Sequence[tuple[str, str]]
    holders: Mapping[tuple[str, int], str | None]


class LineBeat(msgspec.Struct, frozen=True):
    """What a heartbeat brought: the lines still held, new ones, how many are too many, and when one may be free."""

    renewed: set[tuple[str, int]]
    claimed: list[ClaimedLine]
    surplus: dict[str, int]
    next_expiry_ms: int | None
    lines: list[LineRecord]
    now: Instant
    sharing: Sharing


def share_of(worker: str, members: Sequence[str], lines: int) -> int:
    """Return how many of the lines are this process's part; the first members have one more if it does not divide."""
    if worker not in members:
        return 0
    least, more = divmod(lines, len(members))
    return least + (1 if sorted(members).index(worker) < more else 0)


def beat(
    store: Store,
    worker: str,
    readers: Sequence[str],
    held: Mapping[tuple[str, int], LineToken],
    lease_ms: int,
    now: Instant | None = None,
) -> Op[LineBeat]:
    """Renew what this process holds, and claim what is free up to its share of each reader."""
    joined = yield from LINES.join(worker, readers, lease_ms, now)
    renewed: set[tuple[str, int]] = set()
    if held:
        renewed = yield from LINES.renew(list(held.values()), lease_ms, now)
    lines = yield from READERS.lines(now)
    claimed: list[ClaimedLine] = []
    surplus: dict[str, int] = {}
    for reader in readers:
        members = [each for name, each in joined if name == reader]
        count = sum(each.reader == reader for each in lines)
        mine = sum(name == reader for name, _ in renewed)
        room = share_of(worker, members, count) - mine
        if room > 0:
            claimed += yield from LINES.claim(reader, worker, new_id(), room, lease_ms, now)
        elif room < 0:
            surplus[reader] = -room
    lost = [
        Held(f"{each.reader}/{each.line}", each.old_token)
        for each in claimed
        if each.old_token is not None
    ]
    if lost:
        yield from store.leases.evict(lost)
    due_ms = yield from LINES.next_expiry_ms(worker, readers, now)
    moment = yield from resolve_now(now)
    holders = {(each.reader, each.line): each.worker for each in lines}
    holders.update(((each.reader, each.line), worker) for each in claimed)
    return LineBeat(renewed, claimed, surplus, due_ms, lines, moment, Sharing(joined, holders))


def read_sharing(now: Instant | None = None) -> Op[Sharing]:
    """Read what a heartbeat would find, and write nothing."""
    joined = yield from LINES.members(now)
    lines = yield from READERS.lines(now)
    return Sharing(joined, {(each.reader, each.line): each.worker for each in lines})
