"""Debounced jobs in SQLite, which settles them in several statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.records import Held, Settled
from holdfast.storage.operation import Op, Statement
from holdfast.storage.sqlite.tally import resolve_now
from holdfast.storage.store.debounce import DebounceStore
from holdfast.storage.store.params import document, texts


class SqliteDebounceStore(DebounceStore):
    """Revisions; the write lock keeps what was read true."""

    def settle(self, pairs: Sequence[Held], now: Instant | None = None) -> Op[list[Settled]]:
        now = yield from resolve_now(now)
        rows = yield Statement("revision_newest", {"rows": document(pairs)})
        put_off = [
            (id, due_at) for id, input, due_at, _ in rows if input is not None and due_at > now
        ]
        if put_off:
            yield Statement("revision_put_off", {"rows": document(put_off)})
        waiting = {id for id, _ in put_off}
        final = {id: input for id, input, _, _ in rows if input is not None and id not in waiting}
        if final:
            yield Statement("revision_final", {"ids": texts(final)})
            yield Statement("revision_drop", {"ids": texts(final)})
        return [Settled(id, final.get(id), id in waiting, version) for id, _, _, version in rows]
