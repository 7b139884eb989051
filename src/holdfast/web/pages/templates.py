"""The templates: everything is escaped, an unknown name is an error, and files carry their version in the address."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.web.pages import template_filters

STATIC = Path(__file__).parent.parent / "static"

_FILTERS = (
    *(template_filters.ago, template_filters.since, template_filters.until),
    *(
        template_filters.between,
        template_filters.bulk,
        template_filters.caught_up,
        template_filters.clock,
        template_filters.count,
        template_filters.first_line,
        template_filters.minute,
        template_filters.ms,
        template_filters.note,
    ),
    *(template_filters.pretty, template_filters.short, template_filters.term),
)


@cache
def environment() -> Environment:
    """Return the one environment of this process."""
    made = Environment(
        loader=PackageLoader("holdfast.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update({each.__name__: each for each in _FILTERS})
    return made


@cache
def version() -> str:
    """Return a short text that changes with any of the static files."""
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(STATIC.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()
