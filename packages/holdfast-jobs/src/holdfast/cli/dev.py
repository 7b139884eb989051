"""`holdfast init` and `holdfast dev`: a working application to start from, and running it while you change it.

Changes are found by polling: nothing to install, and the same on every platform.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info, print_warning
from holdfast.cli.interrupts import take_interrupts
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.serving_process import free_port, port_option, slots_option
from holdfast.cli.session import app_argument, load_app, open_app
from holdfast.core.errors import NotConfirmed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.child_process import RelayedProcess

POLL_S = 0.3

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
_SUFFIX = ".py"


class SourceWatcher:
    """Finds changes of source files below a directory."""

    def __init__(self, root: Path) -> None:
        """Note the files as they are now."""
        self._root = root
        self._seen = dict(_modification_times(root))

    def find_change(self) -> Path | None:
        """Return a file that was changed, added or removed since the last call, if any."""
        before, self._seen = self._seen, dict(_modification_times(self._root))
        for path in sorted(before.keys() | self._seen.keys()):
            if before.get(path) != self._seen.get(path):
                return path.relative_to(self._root)
        return None


def _modification_times(root: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each not in _SKIPPED and each[0] != "."]
        for name in files:
            if name.endswith(_SUFFIX):
                path = Path(folder, name)
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue
                yield path, (stat.st_mtime_ns, stat.st_size)


@click.command(
    "dev",
    cls=HelpCommand,
    examples=(
        "holdfast dev app:app",
        "holdfast dev app:app --port 8080",
        "holdfast dev app:app --no-dashboard --slots 2",
    ),
)
@app_argument(required=True)
@port_option("The dashboard's port; 0 picks a free one.")
@click.option("--no-dashboard", is_flag=True, help="Run only the worker.")
@slots_option
def dev(spec: str, port: int, no_dashboard: bool, slots: int | None) -> None:
    """Run a worker and the dashboard; restart them when a source file changes.

    Migrates the schema first. Press Ctrl-C once to let handlers finish, twice to stop immediately.
    """
    with open_app(load_app(spec)) as session:
        session.app.migrate()
        print_info(f"running {spec} on {session.app.database.url}")
    # Picked once: after a restart the browser's tab still finds the dashboard.
    run_reloading(_commands(spec, port or free_port(), no_dashboard, slots))


def run_reloading(commands: Sequence[tuple[str, str, Sequence[str]]]) -> int:
    """Run commands, each a name, a colour and its words, and restart them when a source file changes.

    Ctrl-C or SIGTERM stops them once their handlers have finished.
    """
    from holdfast.cli.child_process import RelayedProcess
    from holdfast.cli.orphan_guard import OrphanGuard

    take_interrupts()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    watcher = SourceWatcher(Path.cwd())
    with OrphanGuard() as guard, ExitStack() as stack:
        children = [RelayedProcess(*each, guard) for each in commands]
        for each in children:
            each.start()
            stack.callback(each.kill)
        try:
            _restart_on_change(children, watcher)
        except KeyboardInterrupt:
            print_info("stopping: waiting for handlers; press Ctrl-C again to stop immediately")
            _stop(children)
    return 0


_LOGS = ("--log-format", "pretty")


def _commands(
    spec: str, port: int, no_dashboard: bool, slots: int | None
) -> list[tuple[str, str, Sequence[str]]]:
    more = ["--slots", str(slots)] if slots is not None else []
    commands: list[tuple[str, str, Sequence[str]]] = [
        ("worker", "cyan", ["worker", spec, *_LOGS, "--log-jobs", *more])
    ]
    if not no_dashboard and _has_web_extra():
        words = ["api", "serve", spec, *_LOGS, "--port", str(port)]
        commands.append(("pages", "magenta", words))
    return commands


def _has_web_extra() -> bool:
    from importlib.util import find_spec

    from holdfast.extensions import modules_of

    has_server = all(find_spec(each) is not None for each in ("starlette", "uvicorn"))
    found = has_server and bool(modules_of("dashboard"))
    if not found:
        print_warning('the dashboard needs the extra "web": pip install "holdfast-jobs[web]"')
    return found


def _restart_on_change(children: Sequence[RelayedProcess], watcher: SourceWatcher) -> None:
    """Restart the children at every change; one that exits by itself waits for the next change."""
    while True:
        sleep(POLL_S)
        changed = watcher.find_change()
        if changed is not None:
            print_info(f"{changed} changed: restarting")
            _stop(children)
            for each in children:
                each.start()
            continue
        for each in children:
            code = each.poll()
            if code is not None:
                print_warning(
                    f"the {each.name} exited with code {code}; it restarts at the next change"
                )


def _stop(children: Sequence[RelayedProcess]) -> None:
    """Stop all of them at the same time."""
    for each in children:
        each.terminate()
    for each in children:
        each.wait_or_kill()


FILES = {"app.py": "app.txt", "test_app.py": "test_app.txt"}


@click.command("init", cls=HelpCommand, examples=("holdfast init", "holdfast init shop"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
def init(folder: Path, force: bool, dry_run: bool) -> None:
    """Write a working application with a test."""
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not force:
        raise NotConfirmed(
            f"{folder / existing[0]} already exists",
            help="choose another directory, or overwrite it with --force",
        )
    for name, source in FILES.items():
        if dry_run:
            print_info(f"would write {folder / name}")
        else:
            _write_file(folder / name, source)
    if not dry_run:
        _print_next_steps(folder)


def _write_file(path: Path, source: str) -> None:
    from importlib.resources import files

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files("holdfast.cli").joinpath("starter", source).read_text("utf-8"))
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from None
    click.echo(str(path))


def _print_next_steps(folder: Path) -> None:
    lines = [
        "python app.py                      place an order and start its jobs, in one transaction",
        "holdfast dev app:app               run worker and dashboard; reloads on change",
        "pytest                             run the tests; needs holdfast-jobs[testing]",
    ]
    if folder != Path():
        lines.insert(0, f"cd {shlex.quote(str(folder))}")
    print_info("\n".join(["next:", *(f"  {line}" for line in lines)]))
