"""Debounced jobs: what they are asked for again with, until the newest becomes their input."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.records import Held, NewRevision, RevisionRecord, Settled
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, fetch, fetch_one, fetch_set, texts


class DebounceStore:
    """Revisions of jobs that wait for quiet."""

    def append(self, revisions: Sequence[NewRevision], now: Instant | None = None) -> Op[set[str]]:
        """Append revisions in their order; return the jobs that took theirs. One statement.

        Concurrency: never waits for another producer. A claim of the job waits, in effect, for the caller's commit.
        """
        return fetch_set("revision_add", rows=document(revisions), now=now)

    def settle(self, pairs: Sequence[Held], now: Instant | None = None) -> Op[list[Settled]]:
        """Give claimed jobs their newest input or a later time. One statement.

        Concurrency: what is not returned was lost or is locked, and may not start.
        """
        return fetch(Settled, "revision_settle", rows=document(pairs), now=now)

    def hurry(self, ids: Sequence[str]) -> Op[None]:
        """Let jobs wait no longer for quiet, unless they are asked for again. One statement."""
        yield Statement("revision_hurry", {"ids": texts(ids)})

    def mark(self, ids: Sequence[str]) -> Op[None]:
        """Let jobs that were inserted as blocked take revisions. One statement."""
        yield Statement("revision_follow", {"ids": texts(ids)})

    def of_job(self, job_id: str) -> Op[RevisionRecord | None]:
        """Read when a job starts if it is not asked for again; None when it does not wait for that. One statement."""
        return fetch_one(RevisionRecord, "revision_get", id=job_id)
