"""The reference of the filter language, from the table that the parser reads."""

from __future__ import annotations

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require

from holdfast.core.filters import FIELDS


def page() -> str:
    """Return every term. Raises: Undocumented."""
    require("filter terms without text", (each.name for each in FIELDS.values() if not each.text))
    return table(
        ("term", "operators", "matches"),
        (
            (code(each.example), " ".join(map(code, each.operators)), each.text)
            for each in FIELDS.values()
        ),
    )
