"""Workers in SQLite: folding the tally takes several statements."""

from __future__ import annotations

import msgspec

from holdfast.core.model import Instant
from holdfast.storage.aggregates.worker import Workers
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.statement import Op, Statement

_MINUTE_US = 60_000_000
_AGES = {"day": 25 * 60, "hours": 7 * 60, "hour": 75}
"""After so many minutes counts are kept in steps of a day, of 24 and of 6 minutes."""


class SqliteWorkers(Workers):
    """See `storage.port.WorkerStore`."""

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[int]:
        now = yield from moment(now)
        cut = now - now % _MINUTE_US - _MINUTE_US
        ages = {name: now - minutes * _MINUTE_US for name, minutes in _AGES.items()}
        rows = yield Statement("tally_fold_look", {**ages, "cut": cut, "limit": limit})
        ids = msgspec.json.decode(rows[0][0], type=list[int])
        if ids:
            yield Statement("tally_fold", {**ages, "ids": rows[0][0]})
            yield Statement("tally_fold_drop", {"ids": rows[0][0]})
        return len(ids)
