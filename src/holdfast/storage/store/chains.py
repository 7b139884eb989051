"""Chains, their keys and their blockers, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import (
    BlockerRecord,
    ChainRecord,
    ClosedEdge,
    Instant,
    JobRecord,
    JobRef,
    KeyHolder,
    NewBlocker,
    NewKey,
    Reference,
    State,
    Tail,
)
from holdfast.storage.operation import Op, Statement
from holdfast.storage.query import JobQuery, Walk
from holdfast.storage.store.pagination import Step, along, among, walk
from holdfast.storage.store.params import document, texts


class Chains:
    """See `storage.chain_port.ChainStore`."""

    def claim_keys(self, keys: Sequence[NewKey], now: Instant | None = None) -> Op[set[str]]:
        rows = yield Statement(
            "chain_key_claim",
            {
                "rows": document(keys),
                "scope": keys[0].scope,
                "exclude": texts(keys[0].exclude),
                "now": now,
            },
        )
        return {row[0] for row in rows}

    def key_holders(self, keys: Sequence[tuple[str, str]]) -> Op[list[KeyHolder]]:
        pairs = [{"type": type, "key": key} for type, key in keys]
        rows = yield Statement("chain_key_get", {"rows": document(pairs)})
        return [KeyHolder(row[0], row[1], row[2], bool(row[3])) for row in rows]

    def keep_keys(self, keys: Sequence[tuple[str, str]]) -> Op[None]:
        pairs = [{"type": type, "key": key} for type, key in keys]
        yield Statement("chain_key_keep", {"rows": document(pairs)})

    def tails(self, chain_ids: Sequence[str]) -> Op[list[Tail]]:
        rows = yield Statement("chain_tail", {"ids": texts(chain_ids)})
        return [Tail(*row) for row in rows]

    def get(self, chain_ids: Sequence[str]) -> Op[list[ChainRecord]]:
        rows = yield Statement("chain_get", {"ids": texts(chain_ids)})
        return [ChainRecord(*row) for row in rows]

    def walk(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[ChainRecord]]:
        def match(wanted: JobQuery) -> Op[list[ChainRecord]]:
            return self._fitting(wanted, now)

        return walk(query, look, _step_of(query), match, now)

    def page(self, query: JobQuery, now: Instant | None = None) -> Op[list[ChainRecord]]:
        return (yield from self.walk(query, now=now)).records

    def _fitting(self, query: JobQuery, now: Instant | None) -> Op[list[ChainRecord]]:
        rows = yield Statement("chain_list", {**query.params(), "now": now})
        return [ChainRecord(*row) for row in rows]

    def jobs(self, chain_id: str) -> Op[list[JobRecord]]:
        rows = yield Statement("chain_jobs", {"chain": chain_id})
        return [JobRecord(*row) for row in rows]

    def references(self, chain_ids: Sequence[str]) -> Op[list[Reference]]:
        rows = yield Statement("chain_references", {"chains": texts(chain_ids)})
        return [Reference(*row) for row in rows]

    def blocking(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        rows = yield Statement("chain_blockers", {"chains": texts(chain_ids)})
        return {row[0] for row in rows}

    def delete(
        self, chain_ids: Sequence[str], now: Instant | None = None, keep_keys: bool = False
    ) -> Op[list[str]]:
        given = {"chains": texts(chain_ids), "now": now, "keep_keys": keep_keys}
        rows = yield Statement("chain_delete", given)
        return [row[0] for row in rows]


def _step_of(query: JobQuery) -> Step:
    if query.ids is not None:
        return among(query.ids)
    if query.chain is not None:
        return among([query.chain])
    if query.blocker is not None:
        return along("chain_walk_blocker", blocker=query.blocker)
    if query.key is not None:
        return along("job_walk_key", key=query.key)
    return along("chain_walk")


class Blockers:
    """See `storage.chain_port.BlockerStore`."""

    def insert(self, blockers: Sequence[NewBlocker]) -> Op[None]:
        yield Statement("blocker_insert", {"rows": document(blockers)})

    def wait_on(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        rows = yield Statement("blocker_await", {"tails": texts(tail_ids)})
        return {row[0] for row in rows}

    def hold_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        rows = yield Statement("blocker_hold_ended", {"tails": texts(tail_ids)})
        return {row[0] for row in rows}

    def lock_ended(self, tail_ids: Sequence[str]) -> Op[set[str]]:
        rows = yield Statement("blocker_lock_ended", {"tails": texts(tail_ids)})
        return {row[0] for row in rows}

    def lock_dependents(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        rows = yield Statement("blocker_dependents", {"chains": texts(chain_ids)})
        return {row[0] for row in rows}

    def close(self, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        pairs = [{"chain_id": chain_id, "state": state} for chain_id, state in ended]
        rows = yield Statement("blocker_close", {"rows": document(pairs)})
        return [ClosedEdge(row[0], row[1], bool(row[2])) for row in rows]

    def open_jobs(self, job_ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        rows = yield Statement("blocker_open_jobs", {"ids": texts(job_ids), "now": now})
        return [JobRef(*row) for row in rows]

    def of_jobs(self, job_ids: Sequence[str]) -> Op[list[BlockerRecord]]:
        rows = yield Statement("blocker_list", {"ids": texts(job_ids)})
        return [BlockerRecord(*row) for row in rows]

    def waiting(self, chain_id: str, limit: int) -> Op[list[BlockerRecord]]:
        rows = yield Statement("blocker_waiting", {"chain": chain_id, "limit": limit})
        return [BlockerRecord(*row) for row in rows]

    def dependents(self, chain_id: str, limit: int) -> Op[list[tuple[str, str]]]:
        rows = yield Statement("blocker_dependent_chains", {"chain": chain_id, "limit": limit})
        return [(row[0], row[1]) for row in rows]
