"""What a SQLite file says of itself; it has no dead rows to sweep."""

from __future__ import annotations

from holdfast.storage.aggregates.vitals import Vitals
from holdfast.storage.records import Swept
from holdfast.storage.statement import Op


class SqliteVitals(Vitals):
    """See `storage.schedule_port.VitalsStore`."""

    def sweep(self, few: int) -> Op[Swept | None]:
        yield from ()
        return None
