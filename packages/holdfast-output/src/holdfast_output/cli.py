"""`holdfast output`: what handlers have emitted, and what they emit."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.interrupts import take_interrupts
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import Format, output_option, write_json, write_single
from holdfast.cli.session import CliSession, with_database

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast_output.admin import OutputAdmin
    from holdfast_output.output import OutputItem

_ID = "0193a6f0-7c00-7000-8000-000000000000"


@click.group(
    "output",
    cls=HelpGroup,
    examples=(f"holdfast output show {_ID}", f"holdfast output show {_ID} --follow"),
)
def output() -> None:
    """Show and follow what handlers emit."""


@output.command(
    "show", examples=(f"holdfast output show {_ID} --follow", f"holdfast output show {_ID} -o json")
)
@click.argument("id", metavar="CHAIN")
@click.option("--follow", "-f", is_flag=True, help="Go on until the chain has ended.")
@click.option("--after", default="0", metavar="ITEM", help="Begin behind the item of this id.")
@click.option("--raw", is_flag=True, help="Show payloads unredacted, including secrets.")
@output_option
@with_database
def show(session: CliSession, id: str, follow: bool, after: str, raw: bool, output: Format) -> None:
    """Show what the handlers of a chain have emitted; CHAIN is its id, or a part that only it has.

    Texts are joined as they came, anything else is a line of JSON; -o json prints one object per item.
    """
    chain = session.find_id("chain", id)
    writer = ItemWriter(output)
    if follow:
        take_interrupts()
        session.run(_follow(session, chain, after, raw, writer))
    else:
        writer.write(session.run(_admin(session).read(session.caller(), chain, after, raw)))
    writer.end()


def _admin(session: CliSession) -> OutputAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_output.admin import OutputAdmin

    return session.admin.of(OutputAdmin)


async def _follow(
    session: CliSession, chain: str, after: str, raw: bool, writer: ItemWriter
) -> None:
    from holdfast_output.output import OutputEnd

    batches = _admin(session).follow(session.caller(), chain, after, raw)
    async with aclosing(batches):
        async for some in batches:
            if isinstance(some, OutputEnd):
                writer.end()
                click.echo(f"The chain has {_ENDS[some.state]}.", err=True)
                return
            writer.write(some)


_ENDS = {"completed": "completed", "failed": "failed", "cancelled": "been cancelled"}


class ItemWriter:
    """Writes items to standard output: texts as they come, anything else line by line."""

    def __init__(self, output: Format) -> None:
        self._output = output
        self._epochs: dict[Any, int] = {}
        self._is_within_line = False

    def write(self, items: Iterable[OutputItem]) -> None:
        """Write items; where a job was tried again, say so to standard error."""
        from holdfast_output.server_sent import json_of

        for item in items:
            if self._output == "table":
                self._write_text(item)
            elif self._output == "json":
                write_json(json_of(item))
            else:
                write_single(json_of(item), self._output, lambda: None)
        sys.stdout.flush()

    def end(self) -> None:
        """End the last line."""
        if self._is_within_line:
            click.echo()
        self._is_within_line = False

    def _write_text(self, item: OutputItem) -> None:
        if item.epoch > self._epochs.setdefault(item.job_id, item.epoch):
            self._epochs[item.job_id] = item.epoch
            self.end()
            click.echo("Tried again; what came before no longer counts:", err=True)
        if isinstance(item.data, str):
            click.echo(safe_text(item.data), nl=False)
            self._is_within_line = not item.data.endswith("\n")
        else:
            self.end()
            write_json(item.data)


def safe_text(text: str) -> str:
    """Return a text whose control characters a terminal shows instead of obeying; lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else f"\\u{ord(each):04x}" for each in text
    )
