"""What a SQLite file says of itself: its pragmas, put together."""

from __future__ import annotations

import msgspec

from holdfast.storage.aggregates.vitals import Vitals
from holdfast.storage.statement import Op, Statement


class SqliteVitals(Vitals):
    """See `storage.schedule_port.VitalsStore`."""

    def document(self) -> Op[str]:
        journal = (yield Statement("vitals_journal", {}))[0][0]
        synchronous = (yield Statement("vitals_synchronous", {}))[0][0]
        busy_timeout = (yield Statement("vitals_busy_timeout", {}))[0][0]
        pages = msgspec.json.decode((yield Statement("vitals_pages", {}))[0][0])
        found = {
            "journal": journal,
            "synchronous": synchronous,
            "busy_timeout": busy_timeout,
            **pages,
        }
        return msgspec.json.encode(found).decode()
