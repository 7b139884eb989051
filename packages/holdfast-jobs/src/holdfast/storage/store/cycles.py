"""Cycles, their slots and the runs of both cycles and ticks, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.cycle import (
    ClosedSlot,
    CycleRecord,
    CycleState,
    HeldSlot,
    NewCycle,
    NewRun,
    RunOutcome,
    RunRecord,
    Slot,
)
from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Row, Statement, Value
from holdfast.storage.store.params import (
    document,
    fetch,
    fetch_column,
    fetch_value,
    has_rows,
    texts,
)


def _state(row: Row) -> CycleState:
    now, requests, closed = row[3], [], []
    for name, due_at, state, until in msgspec.json.decode(row[4]):
        if state == "pending" or until <= now:
            requests.append(Slot(name, due_at, True))
        else:
            closed.append(ClosedSlot(name, until, state == "running"))
    return CycleState(
        name=row[0],
        paused=bool(row[1]),
        last_slot=row[2],
        now=now,
        requests=tuple(requests),
        closed=tuple(closed),
    )


def _proof(held: HeldSlot) -> dict[str, Value]:
    return {"cycle": held.cycle, "slot": held.slot.name, "token": held.token}


class CycleStore:
    """Cycles as they are registered, and what people ask of them. A name means the cycle with all its shards."""

    def register(self, cycles: Sequence[NewCycle], now: Instant | None = None) -> Op[None]:
        """Write cycles, which must be in name order; one whose schedule changed begins anew. One statement."""
        yield Statement("cycle_put", {"rows": document(cycles), "now": now})

    def states(self, names: Sequence[str], now: Instant | None = None) -> Op[list[CycleState]]:
        """Read what decides whether cycles are due, by one clock. One statement."""
        rows = yield Statement("cycle_states", {"names": texts(names), "now": now})
        return [_state(row) for row in rows]

    def page(self, now: Instant | None = None) -> Op[list[CycleRecord]]:
        """Read every cycle and who runs it. One statement."""
        return fetch(CycleRecord, "cycle_list", now=now)

    def pause(
        self, name: str, paused: bool, by: str | None, now: Instant | None = None
    ) -> Op[list[str]]:
        """Pause or resume; return the names found. What a pause left out is not caught up. One statement."""
        return fetch_column("cycle_pause", name=name, paused=paused, by=by, now=now)

    def request(self, name: str, slot: str, now: Instant | None = None) -> Op[list[str]]:
        """Ask for a run now; return the names found. One statement."""
        return fetch_column("cycle_request", name=name, slot=slot, now=now)

    def advance(self, cycle: str, slot: Slot) -> Op[None]:
        """Note that a slot and all before it are decided. One statement."""
        yield Statement("cycle_advance", {"cycle": cycle, "due_at": slot.due_at})


class SlotStore:
    """Slot records: each completes at most once."""

    def claim(
        self,
        cycle: str,
        slot: Slot,
        token: str,
        run_id: str,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[HeldSlot | None]:
        """Take a slot for one run; None when it is decided, paused, resting after a failure, or the cycle runs.

        Concurrency: claims of one cycle wait for one another; at most one of its slots runs at a time.
        """
        yield Statement("cycle_lock", {"cycle": cycle})
        rows = yield Statement(
            "slot_claim",
            {
                "cycle": cycle,
                "slot": slot.name,
                "due_at": slot.due_at,
                "requested": slot.requested,
                "token": token,
                "run_id": run_id,
                "lease_ms": lease_ms,
                "now": now,
            },
        )
        return HeldSlot(cycle, slot, token, run_id, rows[0][0]) if rows else None

    def abandon(self, held: HeldSlot, now: Instant | None = None) -> Op[list[str]]:
        """Give up the cycle's other slots that a dead process left running; return them. One statement."""
        return fetch_column("slot_abandon", cycle=held.cycle, slot=held.slot.name, now=now)

    def renew(self, held: HeldSlot, lease_ms: int, now: Instant | None = None) -> Op[bool]:
        """Extend a slot's lease; False when it is lost. One statement."""
        return has_rows("slot_renew", **_proof(held), lease_ms=lease_ms, now=now)

    def fence(self, held: HeldSlot) -> Op[bool]:
        """Prove, last in a transaction, that the slot is still held; it cannot be taken over before the commit."""
        return has_rows("slot_fence", **_proof(held))

    def complete(self, held: HeldSlot, now: Instant | None = None) -> Op[bool]:
        """End a slot for good; False when it is lost. Repeating it is harmless. One statement."""
        return has_rows("slot_finish", **_proof(held), state="completed", pause_ms=None, now=now)

    def fail(self, held: HeldSlot, pause_ms: int | None, now: Instant | None = None) -> Op[bool]:
        """End a run without success: the slot may run again after the pause, without one never. One statement."""
        return has_rows("slot_finish", **_proof(held), state="failed", pause_ms=pause_ms, now=now)


class RunStore:
    """Runs of cycles and ticks, also of those that never came to an end."""

    def begin(self, run: NewRun, now: Instant | None = None) -> Op[Instant]:
        """Write a run; return when it began. One statement."""
        return fetch_value("run_begin", **msgspec.structs.asdict(run), now=now)

    def touch(
        self, run_id: str, counters: str | None = None, now: Instant | None = None
    ) -> Op[None]:
        """Give a sign of life, with counters as JSON. One statement."""
        yield Statement("run_touch", {"id": run_id, "counters": counters, "now": now})

    def finish(
        self,
        run_id: str,
        outcome: RunOutcome,
        counters: str,
        error: str | None = None,
        now: Instant | None = None,
    ) -> Op[bool]:
        """End a run; False when it was found dead before. One statement."""
        return has_rows(
            "run_finish", id=run_id, outcome=outcome, counters=counters, error=error, now=now
        )

    def mark_crashed(self, run: NewRun, slots: Sequence[str]) -> Op[list[str]]:
        """Mark earlier runs of these slots that never ended as crashed; return their ids. One statement."""
        return fetch_column("run_mark_crashed", id=run.id, name=run.name, slots=texts(slots))

    def page(
        self, limit: int, grace_ms: int, name: str | None = None, now: Instant | None = None
    ) -> Op[list[RunRecord]]:
        """Read the last runs, newest first; one that gave no sign within the grace counts as crashed. One statement."""
        if name is None:
            return fetch(RunRecord, "run_list", limit=limit, grace_ms=grace_ms, now=now)
        return fetch(RunRecord, "run_list_of", name=name, limit=limit, grace_ms=grace_ms, now=now)
