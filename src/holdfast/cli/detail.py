"""One thing shown to people in full: a title, a sentence, facts, payloads, a text and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from holdfast.cli.output import Column, Record, clean, write_table
from holdfast.cli.talk import wants_colour


@dataclass(frozen=True, slots=True)
class Detail:
    """What is shown; facts and payloads that are None are left out."""

    title: str
    sentence: str = ""
    colour: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    payloads: Mapping[str, object] = field(default_factory=dict)
    text: str | None = None
    tables: Sequence[tuple[Sequence[Record], Sequence[Column]]] = ()


def write_detail(detail: Detail) -> None:
    """Write a thing in full, to stdout."""
    colour = wants_colour(sys.stdout)
    click.echo(click.style(clean(detail.title), fg=detail.colour, bold=True), color=colour)
    if detail.sentence:
        click.echo(clean(detail.sentence))
    click.echo()
    facts = {name: value for name, value in detail.facts.items() if value is not None}
    space = max(map(len, facts), default=0)
    for name, value in facts.items():
        click.echo(f"  {name:{space}}  {clean(value)}")
    for name, value in detail.payloads.items():
        if value is not None:
            click.echo(f"\n{name}:\n{_indented(json.dumps(value, ensure_ascii=False, indent=2))}")
    if detail.text:
        click.echo(f"\nerror:\n{_indented(detail.text)}")
    for records, columns in detail.tables:
        if records:
            click.echo()
            write_table(records, columns)


def _indented(text: str) -> str:
    """Indent a text of several lines; nothing in it may move the cursor."""
    lines = text.expandtabs(4).splitlines()
    return "\n".join(f"  {''.join(c if c.isprintable() else ' ' for c in line)}" for line in lines)
