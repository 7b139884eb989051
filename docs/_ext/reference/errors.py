"""The reference of error codes: the words of `holdfast explain`."""

from __future__ import annotations

from collections.abc import Mapping

from docs._ext.reference.undocumented import require

from holdfast.core.errors import Explanation
from holdfast.extensions import explain_codes


def page() -> str:
    """Return every code with its meaning and its fix. Raises: Undocumented."""
    return entries(explain_codes())


def entries(known: Mapping[str, Explanation]) -> str:
    """Return these codes. Raises: Undocumented."""
    for part in ("title", "text", "fix"):
        require(f"errors without {part}", (c for c, e in known.items() if not getattr(e, part)))
    return "\n".join(_entry(each) for each in known.values())


def _entry(each: Explanation) -> str:
    return (
        f"({each.code.lower()})=\n"
        f"### {each.code} · {each.name}\n\n{each.title}.\n\n{each.text}\n\n**Fix:** {each.fix}.\n"
    )
