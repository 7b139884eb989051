"""Chains, their keys and their blockers, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.records import (
    BlockerRecord,
    ChainRecord,
    ClosedEdge,
    JobRecord,
    JobRef,
    KeyHolder,
    NewBlocker,
    NewKey,
    Reference,
    State,
    Tail,
    TakenKey,
)
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.pagination import JobQuery, Lists, Step, along, among, within
from holdfast.storage.store.params import document, fetch, fetch_column, fetch_set, has_rows, texts


class ChainStore(Lists[ChainRecord]):
    """Chains, their keys and the edges between them."""

    _record = ChainRecord
    _listing = "chain_list"

    def _step(self, query: JobQuery) -> Step:
        if query.ids is not None:
            return among(query.ids)
        if query.chain is not None:
            return among([query.chain])
        if query.blocker is not None:
            return along("chain_walk_blocker", blocker=query.blocker)
        if query.key is not None:
            return along("job_walk_key", key=query.key)
        if query.context is not None:
            return within(query.context)
        return along("chain_walk")

    def claim_keys(self, keys: Sequence[NewKey], now: Instant | None = None) -> Op[set[str]]:
        """Claim deduplication keys; return the chain ids that won theirs. All keys share one scope and exclusion list.

        Concurrency: waits for a concurrent producer of the same key. Raises: KeyConflict in REPEATABLE READ.
        """
        return fetch_set(
            "chain_key_claim",
            rows=document(keys),
            scope=keys[0].scope,
            exclude=texts(keys[0].exclude),
            now=now,
        )

    def key_holders(self, keys: Sequence[tuple[str, str]]) -> Op[list[KeyHolder]]:
        """Read which chain holds each (type, key), and whether the key outlives it."""
        pairs = [{"type": type, "key": key} for type, key in keys]
        return fetch(KeyHolder, "chain_key_get", rows=document(pairs))

    def keep_keys(self, keys: Sequence[tuple[str, str]]) -> Op[None]:
        """Let keys outlive their chains."""
        pairs = [{"type": type, "key": key} for type, key in keys]
        yield Statement("chain_key_keep", {"rows": document(pairs)})

    def take_keys(self, taken: Sequence[TakenKey]) -> Op[set[str]]:
        """Hand keys over from chains that hold them to others; return the chain ids that took theirs."""
        return fetch_set("chain_key_take", rows=document(taken))

    def use_key(self, type: str, key: str, now: Instant | None = None) -> Op[bool]:
        """Record a key that belongs to no chain; False if it was recorded before. One statement.

        Concurrency: waits for a concurrent transaction with the same key. Raises: KeyConflict in REPEATABLE READ.
        """
        return has_rows("chain_key_use", type=type, key=key, now=now)

    def tails(self, chain_ids: Sequence[str]) -> Op[list[Tail]]:
        """Read the last job of each chain and what became of it."""
        return fetch(Tail, "chain_tail", ids=texts(chain_ids))

    def get(self, chain_ids: Sequence[str]) -> Op[list[ChainRecord]]:
        """Read chains by id. One statement."""
        return fetch(ChainRecord, "chain_get", ids=texts(chain_ids))

    def jobs(self, chain_id: str, last: int | None = None) -> Op[list[JobRecord]]:
        """Read the jobs of a chain, or the last of them, in order. One statement."""
        records = yield from fetch(JobRecord, "chain_jobs", chain=chain_id, limit=last)
        return records[::-1]

    def references(self, chain_ids: Sequence[str]) -> Op[list[Reference]]:
        """Read which jobs outside these chains still wait for them."""
        return fetch(Reference, "chain_references", chains=texts(chain_ids))

    def blocking(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Read the chains that any job of these chains waits or waited for."""
        return fetch_set("chain_blockers", chains=texts(chain_ids))

    def delete(
        self, chain_ids: Sequence[str], now: Instant | None = None, keep_keys: bool = False
    ) -> Op[list[str]]:
        """Remove chains with everything that belongs to them; return the job ids removed.

        With `keep_keys` the keys that were claimed with scope `any` stay.
        """
        given = {"chains": texts(chain_ids), "now": now, "keep_keys": keep_keys}
        return fetch_column("chain_delete", **given)


class BlockerStore:
    """Edges: a job waits for chains. The protocol around them is in `commands.blockers`."""

    def insert(self, blockers: Sequence[NewBlocker]) -> Op[None]:
        """Write open edges."""
        yield Statement("blocker_insert", {"rows": document(blockers)})

    def wait_on(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Mark live tails as awaited, waiting for a transaction that ends them; return those that were still live."""
        return fetch_set("blocker_await", tails=texts(tail_ids))

    def hold_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Hold ended tails against a concurrent redrive; return those that are still ended."""
        return fetch_set("blocker_hold_ended", tails=texts(tail_ids))

    def lock_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        """Lock ended tails against a concurrent attachment; return those that are still ended."""
        return fetch_set("blocker_lock_ended", tails=texts(tail_ids))

    def lock_dependents(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Lock the jobs that wait for these chains, in id order."""
        return fetch_set("blocker_dependents", chains=texts(chain_ids))

    def close(self, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        """Close the edges of ended chains that their policy lets through."""
        pairs = [{"chain_id": chain_id, "state": state} for chain_id, state in ended]
        return fetch(ClosedEdge, "blocker_close", rows=document(pairs))

    def open_jobs(self, job_ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Make blocked jobs without open edges pending; return those opened."""
        return fetch(JobRef, "blocker_open_jobs", ids=texts(job_ids), now=now)

    def of_jobs(self, job_ids: Sequence[str]) -> Op[list[BlockerRecord]]:
        """Read the edges of jobs in declared order, with the blocking chains' results. One statement."""
        return fetch(BlockerRecord, "blocker_list", ids=texts(job_ids))

    def waiting(self, chain_id: str, limit: int) -> Op[list[BlockerRecord]]:
        """Read the edges that lead to a chain. One statement."""
        return fetch(BlockerRecord, "blocker_waiting", chain=chain_id, limit=limit)

    def dependents(self, chain_id: str, limit: int) -> Op[list[tuple[str, str]]]:
        """Read which chains wait for a chain, through others too: pairs of the waiting one and the one it waits for."""
        rows = yield Statement("blocker_dependent_chains", {"chain": chain_id, "limit": limit})
        return [(row[0], row[1]) for row in rows]
