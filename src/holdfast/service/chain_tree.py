"""A chain as a tree: its jobs in order, and below each the chains that it waits for."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import ChainNotFound
from holdfast.service.shown import shown_blocker, shown_chain, shown_job
from holdfast.storage.port import Store
from holdfast.storage.statement import Op

MOST_CHAINS = 200
"""A tree that is larger says so where it was cut."""


def read_tree(store: Store, chain_id: str, depth: int) -> Op[dict[str, Any]]:
    """Read a chain with its jobs and, down to a depth, the chains they wait for. Raises: ChainNotFound."""
    tree = yield from _read(store, chain_id, depth, {chain_id})
    if tree is None:
        raise ChainNotFound(f"there is no chain {chain_id}")
    return tree


def _read(store: Store, chain_id: str, depth: int, seen: set[str]) -> Op[dict[str, Any] | None]:
    chains = yield from store.chains.get([chain_id])
    if not chains:
        return None
    records = yield from store.chains.jobs(chain_id)
    edges = yield from store.blockers.of_jobs([each.id for each in records])
    jobs = {each.id: {**shown_job(each), "waits_for": []} for each in records}
    for edge in edges:
        below: dict[str, Any] | None = None
        if depth > 0 and edge.chain_id not in seen and len(seen) < MOST_CHAINS:
            seen.add(edge.chain_id)
            below = yield from _read(store, edge.chain_id, depth - 1, seen)
        waits_for: list[Any] = jobs[edge.job_id]["waits_for"]
        waits_for.append({**shown_blocker(edge), "chain": below})
    return {**shown_chain(chains[0]), "jobs": list(jobs.values())}
