"""What a shell completes: terms of filters, states, and the job types of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.core.filters import FIELDS
from holdfast.core.lifecycle import STATES

if TYPE_CHECKING:
    import click

TYPES_TIMEOUT_MS = 500
"""A shell waits for the answer, so a database that is slow completes nothing."""


def complete_filter(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a term of a filter: its key, then the last of its values."""
    key, colon, value = _term(ctx.params.get(param.name or "") or (), incomplete)
    if not colon:
        taking = (name for name, each in FIELDS.items() if ":" in each.operators)
        return [f"{each}:" for each in taking if each.startswith(key)]
    given, comma, last = value.rpartition(",")
    known: Iterable[str] = STATES if key == "state" else ()
    if key == "type":
        known = _known_types(ctx)
    # bash takes a colon for the end of a word, and adds what is completed to what follows it.
    written = f"{key}:" if incomplete.startswith(key) else ""
    used = given.split(",")
    return [
        f"{written}{given}{comma}{each}"
        for each in known
        if each.startswith(last) and each not in used
    ]


def _term(before: Sequence[str], incomplete: str) -> tuple[str, str, str]:
    """Return key, colon and value of the term under the cursor, which bash hands over as three words."""
    if incomplete == ":" and before:
        return before[-1], ":", ""
    if before and before[-1] == ":":
        return (*before, "")[-3], ":", incomplete
    return incomplete.partition(":")


def complete_type(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a job type."""
    return [each for each in _known_types(ctx) if each.startswith(incomplete)]


def _known_types(ctx: click.Context) -> list[str]:
    """The types in the database of this command line; none when it cannot be read."""
    from holdfast.admin.types import type_facts
    from holdfast.cli.session import open_app_or_database

    names = ("spec", "url", "schema")
    try:
        with open_app_or_database(*(ctx.params.get(name) for name in names)) as session:
            session.require_database()
            known = session.app.database.read(type_facts(session.store), TYPES_TIMEOUT_MS)
            return sorted(known)
    except Exception:
        # Whatever is wrong, the command itself will say; a shell would print it into the line.
        return []
