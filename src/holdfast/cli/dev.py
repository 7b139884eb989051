"""`holdfast dev`: worker, dashboard and logs in one terminal, restarted when the sources change.

Which source files changed, found by looking: nothing to install, and the same on every platform.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import say, warn
from holdfast.cli.lazy import Command
from holdfast.cli.load_app import load_app
from holdfast.cli.session import using

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.child_process import Child
    from holdfast.cli.orphan_guard import Guardian

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
_SUFFIX = ".py"


class SourceWatch:
    """Remembers when each source file below a folder was last changed."""

    def __init__(self, root: Path) -> None:
        """Look for the first time."""
        self._root = root
        self._seen = dict(_stamps(root))

    def changed(self) -> Path | None:
        """Return a file that was changed, added or removed since the last look, None when there is none."""
        before, self._seen = self._seen, dict(_stamps(self._root))
        for path in sorted(before.keys() | self._seen.keys()):
            if before.get(path) != self._seen.get(path):
                return path.relative_to(self._root)
        return None


def _stamps(root: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
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


LOOK_S = 0.3


@click.command(
    "dev",
    cls=Command,
    examples=(
        "holdfast dev app:app",
        "holdfast dev app:app --port 8080",
        "holdfast dev app:app --no-dashboard --slots 2",
    ),
)
@click.argument("spec", metavar="APP")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=4000,
    show_default=True,
    help="The dashboard's port; 0 picks a free one.",
)
@click.option("--no-dashboard", is_flag=True, help="Run only the worker.")
@click.option(
    "--slots", type=click.IntRange(1, 1_000), help="Maximum concurrent handlers.  [HOLDFAST_SLOTS]"
)
def command(spec: str, port: int, no_dashboard: bool, slots: int | None) -> None:
    """Run a worker and the dashboard; restart them when a source file changes.

    Migrates the schema first. Press Ctrl-C once to let handlers finish, twice to stop immediately.
    """
    from holdfast.cli.orphan_guard import Guardian

    with using(load_app(spec)) as session:
        session.app.migrate()
        say(f"running {spec} on {session.app.database.url}")
    watch = SourceWatch(Path.cwd())
    with Guardian() as guardian, ExitStack() as stack:
        children = _children(spec, port, no_dashboard, slots, guardian)
        for each in children:
            each.start()
            stack.callback(each.kill)
        try:
            _follow(children, watch)
        except KeyboardInterrupt:
            say("stopping: waiting for handlers; press Ctrl-C again to stop immediately")
            for each in children:
                each.ask_to_stop()
            for each in children:
                each.stop()


def _children(
    spec: str, port: int, no_dashboard: bool, slots: int | None, guardian: Guardian
) -> list[Child]:
    from holdfast.cli.child_process import Child

    more = ["--slots", str(slots)] if slots is not None else []
    children = [Child("worker", "cyan", ["worker", spec, "--log-jobs", *more], guardian)]
    if not no_dashboard and _can_serve():
        words = ["api", "serve", spec, "--port", str(port)]
        children.append(Child("pages", "magenta", words, guardian))
    return children


def _can_serve() -> bool:
    from importlib.util import find_spec

    found = all(find_spec(each) is not None for each in ("starlette", "uvicorn", "jinja2"))
    if not found:
        warn('the dashboard needs the extra "web": pip install "holdfast-jobs[web]"')
    return found


def _follow(children: Sequence[Child], watch: SourceWatch) -> None:
    """Look for changes for ever; whoever ended by itself waits for the next one."""
    while True:
        sleep(LOOK_S)
        changed = watch.changed()
        if changed is not None:
            say(f"{changed} changed: restarting")
            for each in children:
                each.ask_to_stop()
            for each in children:
                each.stop()
                each.start()
            continue
        for each in children:
            code = each.has_ended()
            if code is not None:
                warn(f"the {each.name} exited with code {code}; it restarts at the next change")
