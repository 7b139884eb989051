"""What a store must offer to keep chains and who waits for whom; the same rules as in `storage.port`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.model import (
    BlockerRecord,
    ChainRecord,
    Instant,
    JobRecord,
    JobRef,
    NewBlocker,
    NewKey,
    State,
)
from holdfast.storage.query import JobQuery, Walk
from holdfast.storage.records import ClosedEdge, KeyHolder, Reference, Tail
from holdfast.storage.statement import Op


class ChainStore(Protocol):
    """Chains, their keys and the edges between them."""

    def claim_keys(self, keys: Sequence[NewKey], now: Instant | None = None) -> Op[set[str]]:
        """Claim deduplication keys; return the chain ids that won theirs. All keys share one scope and exclusion list.

        Concurrency: waits for a concurrent producer of the same key. Raises: KeyConflict in REPEATABLE READ.
        """

    def key_holders(self, keys: Sequence[tuple[str, str]]) -> Op[list[KeyHolder]]:
        """Read which chain holds each (type, key), and whether the key outlives it."""

    def keep_keys(self, keys: Sequence[tuple[str, str]]) -> Op[None]:
        """Let keys outlive their chains."""

    def tails(self, chain_ids: Sequence[str]) -> Op[list[Tail]]:
        """Read the last job of each chain and where it stands."""

    def get(self, chain_ids: Sequence[str]) -> Op[list[ChainRecord]]:
        """Read chains by id. One statement."""

    def walk(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[ChainRecord]]:
        """Read a page of chains, newest first, looking at no more than `look` of them. Small statements."""

    def page(self, query: JobQuery, now: Instant | None = None) -> Op[list[ChainRecord]]:
        """Read a page of chains, newest first, however many have to be looked at. Small statements."""

    def jobs(self, chain_id: str) -> Op[list[JobRecord]]:
        """Read the jobs of a chain in order. One statement."""

    def references(self, chain_ids: Sequence[str]) -> Op[list[Reference]]:
        """Read which jobs outside these chains still wait for them."""

    def blocking(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Read the chains that any job of these chains waits or waited for."""

    def delete(
        self, chain_ids: Sequence[str], now: Instant | None = None, keep_keys: bool = False
    ) -> Op[list[str]]:
        """Remove chains with everything that belongs to them; return the job ids removed.

        With `keep_keys` the keys that were claimed with scope `any` stay.
        """


class BlockerStore(Protocol):
    """Edges: a job waits for chains. The protocol around them is in `ops.blockers`."""

    def insert(self, blockers: Sequence[NewBlocker]) -> Op[None]:
        """Write open edges."""

    def wait_on(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Mark live tails as awaited, waiting for whoever ends them; return those that were still live."""

    def hold_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Hold ended tails against a concurrent redrive; return those that are still ended."""

    def lock_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Lock ended tails against a concurrent attachment; return those that are still ended."""

    def lock_dependents(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Lock the jobs that wait for these chains, in id order."""

    def close(self, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        """Close the edges of ended chains that their policy lets through."""

    def open_jobs(self, job_ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Make blocked jobs without open edges pending; return those opened."""

    def of_jobs(self, job_ids: Sequence[str]) -> Op[list[BlockerRecord]]:
        """Read the edges of jobs in declared order, with the blocking chains' results. One statement."""

    def dependents(self, chain_id: str, limit: int) -> Op[list[tuple[str, str]]]:
        """Read which chains wait for a chain, through others too: pairs of the waiting one and the one it waits for."""

    def waiting(self, chain_id: str, limit: int) -> Op[list[BlockerRecord]]:
        """Read the edges that lead to a chain. One statement."""
