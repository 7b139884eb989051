"""The root command: whatever is raised below it becomes a text on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO, TextIOWrapper
from typing import Any, TextIO

import click

from holdfast.cli.console import complain
from holdfast.cli.exit_codes import Exit, exit_code
from holdfast.cli.lazy import LazyGroup
from holdfast.core.errors import CommandUsage, HoldfastError, SystemRefused
from holdfast.core.suggestions import nearest


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
        """Run a command line and exit with its code; without `standalone_mode` as click does."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        _settle_streams()
        code = _code_of(run)
        for stream in (sys.stdout, sys.stderr):
            _abandon_if_unwritable(stream)
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that went away, such as `head`, is no error."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Here, because click would make it a failure.
            return Exit.BROKEN_PIPE
        return code


def _settle_streams() -> None:
    """Let every text be written: what the locale cannot spell as an escape, what has no stream to nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, TextIOWrapper(FileIO(os.devnull, "w")))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _code_of(run: Callable[[], object]) -> int:
    """Run a command line; say on stderr what went wrong, and return the exit code."""
    try:
        code = run()
        # Also what --help wrote: a full disk shows only now.
        sys.stdout.flush()
    except BrokenPipeError:
        return Exit.BROKEN_PIPE
    except click.Abort:
        return Exit.INTERRUPTED
    except click.UsageError as error:
        return _complain(_usage(error))
    except click.ClickException as error:
        return _complain(CommandUsage(_sentence(error.format_message())))
    except HoldfastError as error:
        return _complain(error)
    except OSError as error:
        return _complain(_refused(error))
    return code if isinstance(code, int) else Exit.OK


def _complain(error: HoldfastError) -> Exit:
    # With nowhere to complain to, the exit code still says it.
    with suppress(OSError):
        complain(error)
    return exit_code(error)


def _abandon_if_unwritable(stream: TextIO) -> None:
    """Python flushes once more on its way out, and would exit with 120 if it could not."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage(error: click.UsageError) -> CommandUsage:
    """Say a usage error of click's in our words."""
    path = error.ctx.command_path if error.ctx else "holdfast"
    near = ""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [each for param in error.ctx.command.params for each in param.opts]
        near = nearest(error.option_name, [each for each in known if each.startswith("-")])
    message = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    return CommandUsage(f"{path}: {_sentence(message)}", help=near or f"see `{path} --help`")


def _refused(error: OSError) -> SystemRefused:
    """Say in our words what the system refused; without its number, which tells people nothing."""
    where = f"{error.filename}: " if error.filename else ""
    return SystemRefused(f"{where}{error.strerror or error}")


def _sentence(text: str) -> str:
    """Return click's sentence as a part of one."""
    line = " ".join(text.split()).removesuffix(".")
    return line[:1].lower() + line[1:]
