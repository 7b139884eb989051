"""The command of an application's story: its options, its database and its processes."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import click

from holdfast.cli.child_process import ProcessGroup
from holdfast.cli.exit_codes import Exit
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.errors import HoldfastError
from holdfast_demo.local_postgres import run_postgres, temporary_home
from holdfast_demo.remembered_signals import raise_on_signals


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The options that every such command has."""

    kill: bool
    exits: bool
    headless: bool
    port: int | None
    postgres: bool

    def first_port(self, usual: int) -> int:
        """Return the port to try first; 0 is any."""
        if self.port is not None:
            return self.port
        return 0 if self.headless else usual


def local_options(
    port: int, *, kill: str, headless: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command its `LocalOptions` as the first argument; `kill` and `headless` say what these do."""
    declared = (
        click.option("--kill", is_flag=True, help=kill),
        click.option(
            "--exit",
            "exits",
            is_flag=True,
            help="Exit when done; 0 only if nothing is missing or doubled.",
        ),
        click.option("--headless", is_flag=True, help=headless),
        click.option(
            "--port", type=click.IntRange(0, 65_535), help=f"Port of the pages.  [default: {port}]"
        ),
        click.option("--postgres", is_flag=True, help="Start a real PostgreSQL for it."),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**given: Any) -> None:
            options = LocalOptions(
                **{each.name: given.pop(each.name) for each in fields(LocalOptions)}
            )
            command(options, **given)

        for option in reversed(declared):
            call = option(call)
        return call

    return decorate


def run_local(
    name: str,
    home: Path,
    options: LocalOptions,
    run: Callable[[str, OrphanGuard], int],
    *,
    url: str | None = None,
    to_stderr: bool = False,
) -> NoReturn:
    """Run an application on a new database, or on that of a URL, until its end or a signal, and exit with its code.

    What it makes is in a directory of its own, which is empty when it starts.
    """
    raise_on_signals()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    try:
        with (
            OrphanGuard() as guard,
            open_local_database(home, name, options.postgres, guard, url) as (used, shown),
        ):
            click.echo(f"holdfast · {name} · {shown}", err=to_stderr)
            code = run(used, guard)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED if options.exits else Exit.OK
    except HoldfastError as error:
        raise click.ClickException(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{error}; see ./{home / 'log'}") from error
    sys.exit(code)


@contextmanager
def open_local_database(
    home: Path, name: str, is_postgres: bool, guard: OrphanGuard, url: str | None
) -> Iterator[tuple[str, str]]:
    """Yield a database's URL and its name on the screen: a file at home, a PostgreSQL of its own, or that of a URL."""
    if url is not None:
        yield url, "the database of --url"
        return
    if not is_postgres:
        file = (home / f"{name}.db").absolute()
        yield f"sqlite:///{file}", f"SQLite ./{home / file.name}"
        return
    with run_postgres(temporary_home(f"{name}-postgres-"), guard) as address:
        yield address, "PostgreSQL in a temporary directory"


class LocalProcesses:
    """One web server and any number of workers, all in the same environment. None outlives the command."""

    def __init__(
        self, application: str, environment: Mapping[str, str], log: Path, guard: OrphanGuard
    ) -> None:
        """Take what workers run, the environment, and where everything is logged; nothing runs yet."""
        self._application = application
        self._environment = dict(environment)
        self._log = log
        self._guard = guard
        self._running: dict[str, ProcessGroup] = {}
        self._workers = 0

    def run(self, *words: str) -> None:
        """Run a Python module to its end. Raises: CalledProcessError."""
        with self._log.open("ab") as log:
            subprocess.run(
                [sys.executable, "-m", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )

    def start_web(self, web: str, listening: socket.socket) -> None:
        """Serve a web application, given as module:name, on a socket."""
        number = listening.fileno()
        self._start("web", ["holdfast_demo.socket_server", web, str(number)], [number])

    def start_worker(self) -> str:
        """Start one more worker and return its name."""
        self._workers += 1
        name = f"w-{self._workers}"
        self._start(name, ["holdfast", "worker", self._application, "--name", name])
        return name

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, in the middle of whatever it does."""
        self._running.pop(name).kill()

    def freeze(self, name: str, is_frozen: bool) -> None:
        """Stop a process where it is, or let it go on."""
        if (pid := self._running[name].pid) is not None:
            os.kill(pid, signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def take_exited(self) -> list[tuple[str, int]]:
        """Return the processes that exited by themselves, each once, with their codes."""
        found = [(name, each.poll()) for name, each in self._running.items()]
        gone = [(name, code) for name, code in found if code is not None]
        for name, _ in gone:
            del self._running[name]
        return gone

    def stop(self) -> None:
        """Stop everything; kill what takes too long."""
        for each in self._running.values():
            each.terminate()
        for each in self._running.values():
            each.wait_or_kill()
        self._running.clear()

    def _start(self, name: str, words: Sequence[str], inherited: Sequence[int] = ()) -> None:
        self._running[name] = ProcessGroup(self._guard)
        with self._log.open("ab") as log:
            self._running[name].run(words, self._environment, log, inherited)
