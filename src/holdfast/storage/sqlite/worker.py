"""Workers in SQLite: folding the tally takes several statements."""

from __future__ import annotations

from holdfast.core.model import Instant
from holdfast.storage.aggregates.worker import Workers
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.statement import Op, Statement

_MINUTE_US = 60_000_000


class SqliteWorkers(Workers):
    """See `storage.port.WorkerStore`."""

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[None]:
        now = yield from moment(now)
        cut = now - now % _MINUTE_US - _MINUTE_US
        rows = yield Statement("tally_fold_look", {"cut": cut, "limit": limit})
        last = rows[0][0]
        if last is None:
            return
        yield Statement("tally_fold", {"cut": cut, "last": last})
        yield Statement("tally_fold_drop", {"cut": cut, "last": last})
