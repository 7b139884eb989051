"""Tables and code for generated Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; what is in a cell cannot break it."""
    lines = [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Return a text as code, nothing for an empty one."""
    return f"`{text}`" if text else ""


def block(language: str, lines: Iterable[str]) -> str:
    """Return lines as a block of code."""
    return "\n".join([f"```{language}", *lines, "```", ""])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
