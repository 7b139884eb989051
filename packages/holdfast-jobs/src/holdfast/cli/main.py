"""The root command: the table of commands, and errors as messages on stderr and exit codes.

Only click and the errors are imported here, so that help is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO, TextIOWrapper
from typing import Any, TextIO

import click

from holdfast.cli.console import name_program, print_error
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import LazyGroup, takes_filter
from holdfast.core.errors import CommandUsage, HoldfastError, MissingExtra, SystemRefused, nearest
from holdfast.extensions import LazyCommand, find_extensions
from holdfast.version import VERSION


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
        name_program(prog_name or "holdfast")
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        _make_streams_usable()
        code = _run_to_exit_code(run)
        for stream in (sys.stdout, sys.stderr):
            _discard_if_unwritable(stream)
        sys.exit(code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument. Raises: MissingExtra where its extension is not installed."""
        if args[0] not in self.entries and args[0] in _extras():
            raise MissingExtra(
                f"`holdfast {args[0]}` is not installed",
                help=f'pip install "holdfast-jobs[{args[0]}]"',
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that closed the pipe, such as `head`, is no error."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Here, because click would make it a failure.
            return Exit.BROKEN_PIPE
        return code


def _extras() -> list[str]:
    # Only an unknown name needs it, and every command would pay for its import.
    from importlib.metadata import PackageNotFoundError, metadata

    with suppress(PackageNotFoundError):
        return metadata("holdfast-jobs").get_all("Provides-Extra", [])
    return []


def _make_streams_usable() -> None:
    """Escape what the locale cannot encode, and discard what has no stream; a stdin that was closed is empty."""
    if sys.stdin is None:
        sys.stdin = TextIOWrapper(FileIO(os.devnull))
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
    except UnicodeEncodeError as error:
        # Output is escaped, so it came from an argument or a file.
        return _report(CommandUsage(f"{error.object[:60]!r} is not valid {error.encoding.upper()}"))
    except OSError as error:
        return _report(_system_error(error))
    return code if isinstance(code, int) else Exit.OK


def _report(error: HoldfastError) -> Exit:
    # Without a usable stderr, the exit code still tells.
    with suppress(OSError):
        print_error(error)
    return Exit(error.exit_code)


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
        near = _nearest_option(error.option_name, error.ctx.command.params)
    message = _sentence(_message_of(error))
    return CommandUsage(f"{path}: {message}", help=near or f"see `{path} --help`")


def _message_of(error: click.UsageError) -> str:
    """Return what is wrong; with a number, which ones are possible."""
    if isinstance(error, click.NoSuchOption):
        return error.message
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    if not isinstance(kind, click.IntRange) or kind.min is None:
        return error.format_message()
    bounds = f"of at least {kind.min}" if kind.max is None else f"from {kind.min} to {kind.max}"
    return error.format_message().replace("valid integer range", f"whole number {bounds}")


def _nearest_option(name: str, params: Sequence[click.Parameter]) -> str:
    """Suggest an option, or the filter's term for a word that is none: `--state failed` is state:failed."""
    options = [each for param in params for each in param.opts if each.startswith("-")]
    if name == "--url":
        return "the application has its own database: that of Holdfast(url), or HOLDFAST_URL for Holdfast()"
    if not takes_filter(params):
        return nearest(name, options)
    from holdfast.core.filters import FIELDS

    terms = {f"--{each.name}": each.example for each in FIELDS.values()}
    near = nearest(name, [*terms, *options])
    option = near.removeprefix("did you mean ").removesuffix("?")
    return f"filters are terms without dashes, as in {terms[option]}" if option in terms else near


def _system_error(error: OSError) -> SystemRefused:
    """Convert an error of the operating system, without its number."""
    where = f"{error.filename}: " if error.filename else ""
    return SystemRefused(f"{where}{error.strerror or error}")


def _sentence(text: str) -> str:
    """Return a sentence of click as a clause."""
    line = " ".join(text.split()).removesuffix(".")
    return line[:1].lower() + line[1:]


_COMMANDS = {
    "Get started": {
        "init": ("dev", "Write a working application with a test."),
        "dev": ("dev", "Run a worker and the dashboard; restart them when a source file changes."),
    },
    "Run": {
        "worker": ("worker", "Run an application's jobs and cycles until stopped."),
        "tick": ("worker", "Run one tick and exit; exits 1 if a runner failed or did not stop."),
        "api": ("api", "Serve the HTTP API and the dashboard."),
    },
    "Inspect and act": {
        "status": (
            "status",
            "Show the queue's status: a one-sentence summary, counts and job types.",
        ),
        "jobs": ("jobs", "List, show, start, retry, cancel and follow jobs, and list their steps."),
        "chains": ("chains", "List, show, wait for, run again, cancel and delete chains."),
        "signal": ("signals", "Send a signal to the functions that wait for it."),
        "dead": ("dead_letters", "List, show, redrive and drop dead letters."),
        "types": ("types", "List, show, check, pause, resume and configure job types."),
        "limits": ("limits", "List and change fleet-wide limits, by job type and key."),
        "events": ("events", "List and remove event subscriptions, and replay stored events."),
        "cycles": ("cycles", "List, run, pause and resume cycles."),
        "workers": ("workers", "List and drain workers."),
    },
    "Set up and operate": {
        "migrate": ("database", "Bring the schema up to date."),
        "reap": ("workers", "Recover jobs from expired leases, once."),
        "doctor": ("doctor", "Check configuration, fleet and database; exits 6 if a check fails."),
        "audit": ("access", "Show the audit log."),
        "adopt": ("database", "Allow jobs in a copied database to run."),
        "token": ("access", "Create, list and revoke API tokens."),
        "config": ("reference", "Show the effective settings."),
        "explain": ("reference", "Explain an error code and its fix, or a term."),
        "completion": ("reference", "Print a shell completion script."),
    },
}
"""The commands by section: the module of each, and the first sentence of its help, for which nothing is imported."""

SECTIONS = {
    title: {
        name: LazyCommand(f"holdfast.cli.{module}", text) for name, (module, text) in rows.items()
    }
    for title, rows in _COMMANDS.items()
}
for _each in find_extensions():
    for _section, _commands in _each.commands.items():
        SECTIONS.setdefault(_section, {}).update(_commands)


SYNONYMS = {
    "help": "--help",
    **{
        word: f"`holdfast {command}`"
        for command, words in {
            "jobs start": "enqueue add push publish send call apply",
            "jobs retry": "retry requeue",
            "chains rerun": "rerun fork",
            "signal": "signals approve",
            "jobs cancel": "cancel revoke kill abort",
            "jobs list": "list ls tasks task job",
            "jobs show": "show get result inspect why",
            "jobs tail": "logs log tail follow monitor",
            "dead list": "failed failures dlq errors",
            "dead redrive": "redrive replay",
            "chains delete": "purge flush clear delete clean prune",
            "cycles": "cron crontab beat schedule scheduler periodic cycle",
            "types": "queue queues registered type",
            "types pause": "pause stop",
            "types resume": "resume unpause",
            "status": "stats info report ping health",
            "worker": "run start consume consumer work",
            "workers": "ps",
            "api serve": "serve server dashboard web ui flower",
            "migrate": "upgrade db install",
            "events": "event outbox",
            "token create": "login user createsuperuser",
            "config show": "settings env",
            "limits": "limit rate throttle rate_limit",
        }.items()
        for word in words.split()
    },
}
"""Words of other queues, and what does that here."""


@click.group(
    cls=Root,
    sections=SECTIONS,
    synonyms=SYNONYMS,
    examples=("holdfast demo", "holdfast status", "holdfast jobs list state:failed"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="holdfast", message="%(prog)s %(version)s")
def cli() -> None:
    """Durable jobs, outbox events and scheduled tasks on the database you already have.

    Data goes to stdout, messages to stderr. Exit codes: 0 ok · 1 failed · 2 usage or configuration ·
    3 not found · 4 rejected · 5 partial · 6 check failed · 7 database unreachable or schema too
    old · 124 timed out.
    """


def main() -> None:
    """Run the command line of this process."""
    cli(prog_name="holdfast")


if __name__ == "__main__":
    main()
