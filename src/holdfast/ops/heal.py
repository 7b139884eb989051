"""After the database's clock was set back: what was due by a clock that ran ahead is due by the present one."""

from __future__ import annotations

from holdfast.core.model import Instant
from holdfast.storage.port import Store
from holdfast.storage.statement import Op

AHEAD_US = 60_000_000
"""Less than this is no reason to move anything."""

FIRST_ID = "00000000-0000-0000-0000-000000000000"
_MANY = 1_000


def ahead_us(store: Store, now: Instant) -> Op[int]:
    """Return how far the clock is behind what it showed before, by the records of workers, leases and runs."""
    workers = yield from store.workers.page(_MANY)
    leases = yield from store.leases.page(_MANY)
    runs = yield from store.runs.page(1, AHEAD_US // 1000)
    seen = [
        *(each.seen_at for each in workers),
        *(each.claimed_at for each in leases),
        *(each.started_at for each in runs),
    ]
    return max(0, max(seen, default=now) - now)
