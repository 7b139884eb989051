"""Leases: renewing, releasing, reaping, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.records import (
    HealPage,
    Held,
    JobRef,
    LeaseRecord,
    NewProgress,
    ProgressRecord,
    Reaped,
    ReapPage,
)
from holdfast.core.retry import suspected_from
from holdfast.storage.operation import Op, Row, Statement
from holdfast.storage.store.params import count_rows, document, fetch, fetch_set, has_rows, texts


def reap_page(rows: Sequence[Row]) -> ReapPage:
    """Read a reaper's look: rows with a job id are jobs taken back, the others are the leases looked at."""
    reaped = [Reaped(*row[:8]) for row in rows if row[0] is not None]
    leases = [(row[8], row[9]) for row in rows if row[0] is None]
    return ReapPage(reaped, len(leases), max(leases, default=None))


class LeaseStore:
    """Who holds what until when."""

    def renew(self, tokens: Sequence[str], now: Instant | None = None) -> Op[set[str]]:
        """Extend leases by token; return those that still exist. One statement."""
        return fetch_set("lease_renew", tokens=texts(tokens), now=now)

    def held(self, worker: str) -> Op[list[Held]]:
        """Read every job that bears a token of this worker. One statement."""
        return fetch(Held, "lease_held", worker=worker)

    def free(self, tokens: Sequence[str]) -> Op[None]:
        """Remove leases that hold nothing any more. One statement."""
        yield Statement("lease_free", {"tokens": texts(tokens)})

    def release(self, tokens: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Give back everything these claims hold, attempts refunded. One statement."""
        return fetch(JobRef, "lease_release", tokens=texts(tokens), now=now)

    def reap(
        self,
        limit: int,
        poison: int,
        after: tuple[Instant, str] | None = None,
        now: Instant | None = None,
    ) -> Op[ReapPage]:
        """Take back the jobs of at most `limit` expired leases, oldest first.

        A job fails as poison when `poison` workers died while they ran it, and the last of them ran nothing else.

        Concurrency: locked leases and rows are skipped and found by a later run; `after` pages past them.
        """
        rows = yield Statement(
            "lease_reap",
            {
                "limit": limit,
                "poison": poison,
                "suspected": suspected_from(poison),
                "after": after[0] if after else None,
                "after_token": after[1] if after else None,
                "now": now,
            },
        )
        return reap_page(rows)

    def evict(self, lost: Sequence[Held]) -> Op[int]:
        """End the transactions that handlers of these attempts still hold open, where a server can; say how many."""
        return count_rows("lease_evict", rows=document(lost))

    def heal(self, now: Instant | None = None) -> Op[int]:
        """Shorten leases that end later than they can by the present clock; return how many.

        Rests of keys, the quiet of debounced jobs, sleeps and timeouts that began by a clock that ran ahead begin now.
        """
        rows = yield Statement("lease_heal", {"now": now})
        yield Statement("limit_heal", {"now": now})
        yield Statement("revision_heal", {"now": now})
        yield Statement("step_heal", {"now": now})
        return len(rows)

    def heal_queue(self, after: str, now: Instant | None = None) -> Op[HealPage]:
        """Move what is due by a clock that ran ahead, in a page of jobs by id; nothing that was planned."""
        ((last, seen, healed),) = yield Statement("queue_heal", {"after": after, "now": now})
        return HealPage(last, seen, healed)

    def page(self, limit: int, worker: str | None = None) -> Op[list[LeaseRecord]]:
        """Read leases, the soonest to end first. One statement."""
        return fetch(LeaseRecord, "lease_list", limit=limit, worker=worker)

    def isolate(self, token: str) -> Op[bool]:
        """Note that the worker runs nothing but this lease's one job; False when the lease is gone. One statement."""
        return has_rows("lease_isolate", token=token)

    def guard(self, idle_ms: int) -> Op[None]:
        """Have the server, where there is one, end this transaction after so long a silence. One statement."""
        yield Statement("lease_guard", {"idle_ms": idle_ms})

    def report(self, progress: Sequence[NewProgress], now: Instant | None = None) -> Op[None]:
        """Record how far attempts are; what comes without a valid token is ignored. One statement."""
        yield Statement("progress_put", {"rows": document(progress), "now": now})

    def forget(self, progress: Sequence[NewProgress]) -> Op[None]:
        """Remove what these attempts said, unless a later attempt has spoken since. One statement."""
        yield Statement("progress_drop", {"rows": document(progress)})

    def progress(self, ids: Sequence[str]) -> Op[list[ProgressRecord]]:
        """Read how far running jobs are; only what their present attempt said. One statement."""
        return fetch(ProgressRecord, "progress_get", ids=texts(ids))
