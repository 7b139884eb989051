"""The root command: it turns every error into a message on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO, TextIOWrapper
from typing import Any, TextIO

import click

from holdfast.cli.console import print_error
from holdfast.cli.exit_codes import Exit, exit_code
from holdfast.cli.lazy import LazyGroup
from holdfast.core.errors import CommandUsage, HoldfastError, SystemRefused, nearest


class Root(LazyGroup):
    """The `holdfast` command."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit with its code; without `standalone_mode`, as click does."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        _make_streams_writable()
        code = _run_to_exit_code(run)
        for stream in (sys.stdout, sys.stderr):
            _discard_if_unwritable(stream)
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that closed the pipe, such as `head`, is no error."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Here, because click would make it a failure.
            return Exit.BROKEN_PIPE
        return code


def _make_streams_writable() -> None:
    """Escape what the locale cannot encode, and discard what has no stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, TextIOWrapper(FileIO(os.devnull, "w")))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run_to_exit_code(run: Callable[[], object]) -> int:
    """Run a command line, print its error to stderr, and return the exit code."""
    try:
        code = run()
        # Also what --help wrote: a full disk shows only now.
        sys.stdout.flush()
    except BrokenPipeError:
        return Exit.BROKEN_PIPE
    except click.Abort:
        return Exit.INTERRUPTED
    except click.UsageError as error:
        return _report(_usage_error(error))
    except click.ClickException as error:
        return _report(CommandUsage(_sentence(error.format_message())))
    except HoldfastError as error:
        return _report(error)
    except OSError as error:
        return _report(_system_error(error))
    return code if isinstance(code, int) else Exit.OK


def _report(error: HoldfastError) -> Exit:
    # Without a usable stderr, the exit code still tells.
    with suppress(OSError):
        print_error(error)
    return exit_code(error)


def _discard_if_unwritable(stream: TextIO) -> None:
    """Python flushes once more at exit, and would exit with 120 if that failed."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage_error(error: click.UsageError) -> CommandUsage:
    """Convert a usage error of click."""
    path = error.ctx.command_path if error.ctx else "holdfast"
    near = ""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [each for param in error.ctx.command.params for each in param.opts]
        near = nearest(error.option_name, [each for each in known if each.startswith("-")])
    message = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    return CommandUsage(f"{path}: {_sentence(message)}", help=near or f"see `{path} --help`")


def _system_error(error: OSError) -> SystemRefused:
    """Convert an error of the operating system, without its number."""
    where = f"{error.filename}: " if error.filename else ""
    return SystemRefused(f"{where}{error.strerror or error}")


def _sentence(text: str) -> str:
    """Return a sentence of click as a clause."""
    line = " ".join(text.split()).removesuffix(".")
    return line[:1].lower() + line[1:]
