"""Commands that are imported when they are called, and help that begins with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from holdfast.cli.exit_codes import Exit
from holdfast.core.errors import CommandUsage
from holdfast.core.suggestions import nearest


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and its line in the list, known without importing it."""

    module: str
    text: str


class Command(click.Command):
    """A command whose help begins with examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        """Take click's own arguments and the examples, one line each."""
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; every complaint names this command, which click forgets for some."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, usage, text and options, in this order."""
        write_examples(self.examples, formatter)
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the terms of the filter language where a filter is taken."""
        if any("FILTER" in (each.metavar or "") for each in self.params):
            from holdfast.core.filters import FIELDS

            with formatter.section("Filter terms"):
                formatter.write_dl([(each.example, each.text) for each in FIELDS.values()])
        super().format_epilog(ctx, formatter)


class Group(click.Group):
    """Commands of one noun; a wrong name is answered with the nearest."""

    command_class = Command

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        """Take click's own arguments and the examples, one line each."""
        super().__init__(*arguments, **{"no_args_is_help": False, **options})
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; a noun alone is answered with its help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, usage, text, options and commands, in this order."""
        write_examples(self.examples, formatter)
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order in which they were defined."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument, or say which name is nearest."""
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise CommandUsage(
            f"{ctx.command_path} has no command {name[:60]!r}",
            help=nearest(name, known) or f"see `{ctx.command_path} --help`",
        )


class LazyGroup(Group):
    """The root: sections of commands that are imported when they are called."""

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Mapping[str, Entry]], **options: Any
    ) -> None:
        """Take click's own arguments and the table of commands by section."""
        super().__init__(*arguments, **options)
        self.sections = sections
        self.entries = {name: entry for each in sections.values() for name, entry in each.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of this name."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = import_module(entry.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table as it stands, importing nothing."""
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.text) for name, entry in entries.items()])


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write example lines as they are typed."""
    if not examples:
        return
    with formatter.section("Examples"):
        for line in examples:
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")
    formatter.write_paragraph()
