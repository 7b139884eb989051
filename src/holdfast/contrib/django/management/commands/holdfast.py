"""`manage.py holdfast …`: Holdfast's own commands, for the application in settings.HOLDFAST_APP."""

from __future__ import annotations

import sys
from typing import Any

import click
from django.conf import settings
from django.core.management.base import BaseCommand


class ManageCommand(BaseCommand):
    """Passes everything on to the `holdfast` command."""

    help = "Runs Holdfast's commands, for example `manage.py holdfast worker`."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command line as typed; Django's own parser would take its options."""
        from holdfast.cli.main import cli

        cli(args=_with_app(argv[2:]), prog_name=f"{argv[0]} {argv[1]}")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run what call_command was given."""
        self.run_from_argv([sys.argv[0], "holdfast", *map(str, args)])


Command = ManageCommand
"""The name that Django looks for."""


def _with_app(arguments: list[str]) -> list[str]:
    """Add the application to a command that takes one and names none."""
    from holdfast.cli.main import cli

    command: click.Command | None = cli
    context = click.Context(cli)
    for each in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(context, each)
    options = () if command is None else [name for param in command.params for name in param.opts]
    if "--app" not in options or "--app" in arguments:
        return arguments
    module, _, attribute = str(settings.HOLDFAST_APP).replace(":", ".").rpartition(".")
    return [*arguments, "--app", f"{module}:{attribute}"]
