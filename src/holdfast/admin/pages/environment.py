"""The templates: everything is escaped, an unknown name is an error, and files carry their version in the address."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.admin.pages import moments, words

STATIC = Path(__file__).parent.parent / "static"

_FILTERS = (
    *(moments.ago, moments.since, moments.until),
    *(
        words.between,
        words.bulk,
        words.caught_up,
        words.clock,
        words.count,
        words.first_line,
        words.minute,
        words.ms,
        words.note,
    ),
    *(words.pretty, words.short, words.term),
)


@cache
def environment() -> Environment:
    """Return the one environment of this process."""
    made = Environment(
        loader=PackageLoader("holdfast.admin"),
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
