"""Chains and blockers in SQLite: deleting takes several statements, and closing an edge reads its policy here."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import ClosedEdge, Instant, State
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.query import JobQuery
from holdfast.storage.sqlite.tally import Tally, page_params
from holdfast.storage.store.chains import BlockerStore, ChainStore
from holdfast.storage.store.params import document, texts


class SqliteChainStore(ChainStore):
    """Chains, deleted in several statements."""

    def _page_params(self, query: JobQuery) -> dict[str, Value]:
        return page_params(query)

    def delete(
        self, chain_ids: Sequence[str], now: Instant | None = None, keep_keys: bool = False
    ) -> Op[list[str]]:
        given = {"chains": texts(chain_ids)}
        tally = Tally()
        for (type,) in (yield Statement("chain_delete_queue", given)):
            tally.of(type).removed += 1
        for type, state in (yield Statement("chain_delete_outcomes", given)):
            count = tally.of(type)
            count.removed += 1
            count.end(state, -1)
        yield Statement("chain_delete_attempts", given)
        yield Statement("chain_delete_progress", given)
        yield Statement("chain_delete_blockers", given)
        yield Statement("chain_delete_keys", {**given, "keep_keys": keep_keys})
        if keep_keys:
            yield Statement("chain_outlive", {**given, "now": now})
        rows = yield Statement("chain_delete", given)
        yield from tally.write(now)
        return [row[0] for row in rows]


class SqliteBlockerStore(BlockerStore):
    """Blockers, whose policy is read here when an edge closes."""

    def close(self, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        pairs = [{"chain_id": chain_id, "state": state} for chain_id, state in ended]
        rows = yield Statement("blocker_close", {"rows": document(pairs)})
        # RETURNING sees only the edge, so what its chain ended as is looked up here.
        states = dict(ended)
        return [
            ClosedEdge(job_id, chain_id, bool(fails) and states[chain_id] != "completed")
            for job_id, chain_id, fails in rows
        ]
