"""`holdfast explain`: what an error code means."""

from __future__ import annotations

import textwrap
from dataclasses import asdict

import click

from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Format, columns, output_option, write_records
from holdfast.core.errors import CommandUsage, Explanation, explanations, nearest

_WIDTH = 90
_COLUMNS = columns("code", "name", "title")


@click.command(
    "explain", cls=HelpCommand, examples=("holdfast explain HF017", "holdfast explain -o json")
)
@click.argument("code", required=False)
@output_option
def command(code: str | None, output: Format) -> None:
    """Explain an error code and its fix.

    Without a code, list all.
    """
    known = explanations()
    if code is None:
        write_records([asdict(each) for each in known.values()], _COLUMNS, output, id="code")
        return
    found = known.get(_normalize(code))
    if found is None:
        raise CommandUsage(
            f"unknown error code {code[:20]!r}",
            help=nearest(_normalize(code), known) or "see `holdfast explain` for all codes",
        )
    if output == "table":
        click.echo(_format(found))
    else:
        write_records([asdict(found)], _COLUMNS, output, id="code", single=True)


def _normalize(code: str) -> str:
    bare = code.strip().upper().removeprefix("HF")
    return f"HF{int(bare):03d}" if bare.isascii() and bare.isdigit() else code.upper()


def _format(each: Explanation) -> str:
    lines = [f"{each.code} · {each.name}", f"{each.title}.", "", *textwrap.wrap(each.text, _WIDTH)]
    return "\n".join([*lines, "", f"Fix: {each.fix}."])
