"""`manage.py holdfast …`: Holdfast's own commands, for the application of this project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandParser

SPEC = "holdfast_django:app"

_OF_DJANGO = ("--settings", "--pythonpath")
"""Options of every command of Django, which has obeyed them by the time that we are called."""


class ManageCommand(BaseCommand):
    """Passes everything on to the `holdfast` command."""

    help = "Runs Holdfast's commands, for example `manage.py holdfast worker`."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command line as typed; Django's own parser would take its options."""
        from holdfast.cli.main import cli
        from holdfast_django.application import use_console_of_worker

        use_console_of_worker()
        arguments = _with_app(_without_django(argv[2:]))
        # Commands that start more processes run `python -m holdfast` with these words, and import from this project.
        sys.argv = ["holdfast", *arguments]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _import_path()))
        cli(args=arguments, prog_name=f"{argv[0]} {argv[1]}")

    def add_arguments(self, parser: CommandParser) -> None:
        """Take what call_command is given as it is: the options are those of Holdfast's commands."""
        parser.add_argument("args", nargs=REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run what call_command was given, and return if that succeeded."""
        try:
            self.run_from_argv([sys.argv[0], "holdfast", *map(str, args)])
        except SystemExit as error:
            if error.code:
                raise


Command = ManageCommand
"""The name that Django looks for."""


def _import_path() -> list[str]:
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [each for each in sys.path[:1] if each not in known] + known


def _without_django(arguments: list[str]) -> list[str]:
    kept, following = [], False
    for each in arguments:
        if following:
            following = False
        elif each in _OF_DJANGO:
            following = True
        elif not each.startswith(tuple(f"{option}=" for option in _OF_DJANGO)):
            kept.append(each)
    return kept


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
    is_named = any(each == "--app" or each.startswith("--app=") for each in arguments)
    if "--app" not in options or is_named:
        return arguments
    return [*arguments, "--app", SPEC]
