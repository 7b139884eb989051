"""Workers in SQLite: folding the tally takes several statements."""

from __future__ import annotations

from holdfast.core.model import Instant
from holdfast.storage.aggregates.worker import Workers
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.statement import Op, Statement

_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US


class SqliteWorkers(Workers):
    """See `storage.port.WorkerStore`."""

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[int]:
        now = yield from moment(now)
        bounds = {"cut": now - now % _MINUTE_US - _MINUTE_US, "yesterday": now - 25 * _HOUR_US}
        rows = yield Statement("tally_fold_look", {**bounds, "limit": limit})
        number, last = rows[0]
        if number:
            yield Statement("tally_fold", {**bounds, "last": last})
            yield Statement("tally_fold_drop", {**bounds, "last": last})
        return int(number)
