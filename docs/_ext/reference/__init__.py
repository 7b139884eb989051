"""Writes the reference from the code while Sphinx reads the pages; anything undocumented fails the build.

A page says where: a line `<!-- reference: settings -->` is replaced by what `settings.py` beside this file makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from docs._ext.reference import (
    api,
    campaigns,
    celery,
    commands,
    errors,
    events,
    filters,
    http,
    options,
    schema,
    settings,
)
from docs._ext.reference.undocumented import Undocumented

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PARTS: Mapping[str, Callable[[], str]] = {
    "api": api.page,
    "campaign-promises": campaigns.promises,
    "campaign-seeds": campaigns.seeds,
    "campaigns": campaigns.page,
    "celery": celery.page,
    "commands": commands.page,
    "errors": errors.page,
    "events": events.page,
    "filters": filters.page,
    "http": http.page,
    "metrics": events.metrics,
    "options": options.page,
    "schema": schema.page,
    "seed-names": events.seed_names,
    "settings": settings.page,
}

_MARK = re.compile(r"^<!-- reference: ([a-z-]+) -->$", re.MULTILINE)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def filled(text: str) -> str:
    """Return a page with its marks replaced. Raises: Undocumented, KeyError for an unknown part."""
    return _MARK.sub(lambda mark: PARTS[mark[1]](), text)


def _fill(app: Sphinx, docname: str, content: list[str]) -> None:
    from sphinx.errors import SphinxError

    try:
        content[0] = filled(content[0])
    except Undocumented as error:
        raise SphinxError(f"{docname}: {error}") from error


def _mark_code(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let a single backtick in a docstring mean code, as it does everywhere else here."""
    lines[:] = [_CODE.sub(r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> dict[str, object]:
    """Let Sphinx call us."""
    from pygments.lexers.shell import BashLexer  # type: ignore[import-untyped]

    app.setup_extension("sphinx.ext.autodoc")
    # Our console blocks hold commands without a prompt, which Pygments would take for output.
    app.add_lexer("console", BashLexer)
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _mark_code)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
