"""Commands that are imported when they are called, and help that starts with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from holdfast.cli.console import as_typed
from holdfast.cli.exit_codes import Exit
from holdfast.core.errors import CommandUsage, nearest
from holdfast.extensions import LazyCommand


class ExamplesFirst(click.Command):
    """A command or group whose help starts with examples, one line each."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, with commands as people type them here."""
        return as_typed(super().get_help(ctx))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, unwrapped, then usage, text, options and commands."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
            formatter.write_paragraph()
        super().format_help(ctx, formatter)


class HelpCommand(ExamplesFirst):
    """A command; its help ends with the terms of the filter language where it takes a filter."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; every error names this command, which click forgets for some."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the terms of the filter language where a filter is taken."""
        if takes_filter(self.params):
            from holdfast.core.filters import FIELDS

            with formatter.section("Filter terms"):
                formatter.write_dl([(each.example, each.text) for each in FIELDS.values()])
        super().format_epilog(ctx, formatter)


def takes_filter(params: Sequence[click.Parameter]) -> bool:
    """Return whether a command takes terms of the filter language."""
    return any("FILTER" in (each.metavar or "") for each in params)


_WHOLE_SENTENCE = 1_000


class HelpGroup(ExamplesFirst, click.Group):
    """The commands of one noun; an unknown name gets a suggestion, `synonyms` first."""

    command_class = HelpCommand

    def __init__(
        self, *arguments: Any, synonyms: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **{"no_args_is_help": False, **options})
        self._synonyms = synonyms or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a noun alone prints its help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their definition."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole first sentence; click would cut it to a line."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, each.get_short_help_str(_WHOLE_SENTENCE))
            for name, each in found
            if each is not None and not each.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument, or suggest the nearest name."""
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise CommandUsage(
            f"{ctx.command_path} has no command {name[:60]!r}",
            help=self._suggestion(name, known) or f"see `{ctx.command_path} --help`",
        )

    def _suggestion(self, name: str, known: Sequence[str]) -> str:
        meant = self._synonyms.get(name)
        return nearest(name, known) if meant is None else f"did you mean {meant}?"


class LazyGroup(HelpGroup):
    """The root: sections of commands that are imported when they are called."""

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Mapping[str, LazyCommand]], **options: Any
    ) -> None:
        """Take click's own arguments and the table of commands by section."""
        super().__init__(*arguments, **options)
        self.sections = sections
        self.entries = {name: entry for each in sections.values() for name, entry in each.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if the name is unknown."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        attribute = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(entry.module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, importing nothing."""
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.text) for name, entry in entries.items()])
