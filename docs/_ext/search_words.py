"""Lets the documentation's search find a page by words that its title does not have.

A page says them: a line `<!-- search: rate limit, throttle -->` makes them entries of the index that lead to it. How
results are ordered beyond that is in `search_scorer.js` beside this file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_MARK = re.compile(r"^<!-- search: (.+) -->$", re.MULTILINE)


def _index(mark: re.Match[str]) -> str:
    # The exclamation mark makes it a main entry; the search shows the others last.
    words = ", ".join(f"! {each.strip()}" for each in mark[1].split(","))
    return f"```{{index}} {words}\n```"


def _fill(app: Sphinx, docname: str, content: list[str]) -> None:
    content[0] = _MARK.sub(_index, content[0])


def setup(app: Sphinx) -> dict[str, object]:
    """Let Sphinx call us."""
    app.connect("source-read", _fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
