"""Finding and removing what is old enough, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.lifecycle import TerminalState
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import (
    count_rows,
    document,
    fetch,
    fetch_column,
    fetch_set,
    fetch_value,
    texts,
)


class FailedJob(msgspec.Struct, frozen=True):
    """A failed job and the chain it belongs to."""

    id: str
    chain_id: str


class KeepRule(msgspec.Struct, frozen=True):
    """How long chains of a type that ended in a state are kept, and up to when they were removed."""

    type: str
    state: TerminalState
    keep_ms: int
    swept_until: Instant | None = None


class EndedChain(msgspec.Struct, frozen=True):
    """A chain and when its last job ended."""

    id: str
    ended_at: Instant


class RetentionStore:
    """What is old enough to be removed, in bounded batches."""

    def latest_archived(self) -> Op[Instant | None]:
        """Read when an archive last verified ended chains; None where none does. One statement."""
        return fetch_value("retention_archived")

    def page(self, after: str, until: str, limit: int) -> Op[list[str]]:
        """Read the ids of chains between two ids, oldest first. One statement."""
        return fetch_column("retention_page", after=after, until=until, limit=limit)

    def progress(
        self, until: str, until_step: Instant, since: Instant, limit: int
    ) -> Op[tuple[int, int]]:
        """Estimate how many ended jobs before an id are still stored, and count removals since an instant.

        `until_step` is the beginning of the last step of the tally that lies wholly before the id. One statement.
        """
        rows = yield Statement(
            "retention_progress",
            {"until": until, "until_step": until_step, "since": since, "limit": limit},
        )
        return rows[0]

    def dead_page(self, after: str, until: str, limit: int) -> Op[list[FailedJob]]:
        """Read failed jobs between two ids, oldest first. One statement."""
        return fetch(FailedJob, "retention_dead_page", after=after, until=until, limit=limit)

    def hold(
        self,
        chain_ids: Sequence[str],
        before: Instant,
        dead_before: Instant,
        now: Instant | None = None,
    ) -> Op[list[str]]:
        """Lock and return the chains that ended before the instants and whose key no longer counts.

        Concurrency: what others hold is skipped.
        """
        return fetch_column(
            "retention_hold",
            chains=texts(chain_ids),
            before=before,
            dead_before=dead_before,
            now=now,
        )

    def types(self, chain_ids: Sequence[str]) -> Op[dict[str, str]]:
        """Read the types of the first jobs of chains, by chain. One statement."""
        return dict((yield Statement("retention_types", {"chains": texts(chain_ids)})))

    def waited(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Read which of the chains a live job depends on. One statement."""
        return fetch_set("retention_waited", chains=texts(chain_ids))

    def drop_runs(self, until: str, limit: int) -> Op[int]:
        """Remove runs whose id lies before one; return how many. One statement."""
        return count_rows("retention_runs", until=until, limit=limit)

    def drop_slots(self, before: Instant, limit: int) -> Op[int]:
        """Remove slots that ended before an instant; return how many. One statement."""
        return count_rows("retention_slots", before=before, limit=limit)

    def drop_keys(self, before: Instant, limit: int) -> Op[int]:
        """Remove keys whose chains went before an instant; return how many. One statement."""
        return count_rows("retention_keys", before=before, limit=limit)

    def drop_workers(self, before: Instant, limit: int) -> Op[int]:
        """Remove workers that stopped before an instant; return how many. One statement."""
        return count_rows("retention_workers", before=before, limit=limit)

    def drop_signals(self, limit: int, now: Instant | None = None) -> Op[int]:
        """Remove signals whose time is over; return how many. One statement."""
        return count_rows("retention_signals", limit=limit, now=now)

    def drop_redrives(self, until: str, limit: int) -> Op[int]:
        """Remove redrives whose id lies before one, and what was left of them; return how many rows went."""
        jobs = yield from count_rows("retention_redrive_jobs", until=until, limit=limit)
        return jobs + (yield from count_rows("retention_redrives", until=until))


class KeepStore:
    """Types that are kept for a time of their own."""

    def rules(self) -> Op[list[KeepRule]]:
        """Read which types are kept for a time of their own. One statement."""
        return fetch(KeepRule, "keep_rules")

    def set(self, types: Sequence[str], rules: Sequence[KeepRule]) -> Op[None]:
        """Set the rules of these types; those that have none any more are forgotten."""
        rows = document(rules)
        yield Statement("keep_forget", {"types": texts(types), "rows": rows})
        yield Statement("keep_declare", {"rows": rows})

    def oldest(self) -> Op[str | None]:
        """Read the id of the oldest chain. One statement."""
        return fetch_value("keep_oldest")

    def ended_page(
        self, rule: KeepRule, since: Instant, until: Instant, limit: int
    ) -> Op[list[EndedChain]]:
        """Read chains of a rule that ended between two instants, the first included, oldest first. One statement."""
        return fetch(
            EndedChain,
            "keep_ended_page",
            type=rule.type,
            state=rule.state,
            since=since,
            until=until,
            limit=limit,
        )

    def sweep(self, rule: KeepRule, until: Instant) -> Op[None]:
        """Note that a rule's chains up to an instant were removed, or are needed. One statement."""
        yield Statement("keep_swept", {"type": rule.type, "state": rule.state, "until": until})
