"""The reference of error codes: the words of `holdfast explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from docs._ext.reference.undocumented import require

from holdfast.core.errors import Explanation, HoldfastError
from holdfast.extensions import explain_codes


def page() -> str:
    """Return the tree of errors, and every code with its meaning and its fix. Raises: Undocumented."""
    known = explain_codes()
    return "\n".join(["```text", *tree(HoldfastError), "```", "", entries(known)])


def tree(kind: type[HoldfastError], margin: str = "") -> Iterator[str]:
    """Draw a class and those below it, with their codes and what is worth another attempt."""
    if not kind.__name__.startswith("_"):
        code, retryable = kind.__dict__.get("code", ""), "retryable" if kind.retryable else ""
        yield f"{margin + kind.__name__:<34}{code:<7}{retryable}".rstrip()
        margin += "  "
    for each in kind.__subclasses__():
        yield from tree(each, margin)


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
