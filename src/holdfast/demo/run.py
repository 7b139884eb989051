"""The demo from opening to closing: what is set up is told, the story runs, the books are checked at the end."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from holdfast.cli.exit_codes import Exit
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.core.errors import SchemaChanged, SchemaTooNew
from holdfast.core.lease import default_heartbeat_ms
from holdfast.demo import tables
from holdfast.demo.place import DemoDatabase
from holdfast.demo.placing import Customers
from holdfast.demo.plain import TextScreen
from holdfast.demo.shop import app
from holdfast.demo.staff import SLOTS, WorkerProcess
from holdfast.demo.story import DemoOptions, Story, set_paused
from holdfast.storage.id_generator import new_id
from holdfast.version import VERSION

LOG = Path("holdfast-demo.log")

_SIGN_IN_S = 60.0
_LOOK_S = 0.05


class Demo:
    """One run of the demo."""

    def __init__(self, plan: DemoOptions, place: DemoDatabase, guardian: OrphanGuard) -> None:
        """Take what was asked for, where the shop is, and who cleans up after us."""
        self._plan = plan
        self._place = place
        self._staff = WorkerProcess(place.url, plan.lease_ms, LOG, guardian)

    def run(self) -> int:
        """Open the shop, let the story happen, close in order; return the exit code."""
        version = ".".join(VERSION.split(".")[:2])
        click.echo(f"holdfast {version} · demo shop · {self._place.name}")
        with ExitStack() as stack:
            connection = stack.enter_context(tables.connect(self._place.url))
            stack.callback(app.close)
            self._open(connection)
            customers = Customers(self._place.url, self._plan.rate, click.echo)
            stack.callback(customers.close)
            # Before the customers: one of them may wait for a lock that the worker holds.
            stack.callback(self._staff.kill)
            self._hire()
            story = Story(self._plan, self._staff, customers, connection)
            self._serve(stack, story)
            story.order(self._plan.orders)
            return self._play(story, customers)

    def _open(self, connection: tables.Connection) -> None:
        began = time.monotonic()
        _migrate()
        tables.open_shop(connection)
        set_paused(False)
        _adopt_own()
        _print_ready("schema ready", f"{(time.monotonic() - began) * 1000:.0f} ms")

    def _hire(self) -> None:
        self._staff.hire()
        deadline = time.monotonic() + _SIGN_IN_S
        while self._staff.worker_id() is None and time.monotonic() < deadline:
            code = self._staff.has_ended()
            if code is not None:
                raise click.ClickException(f"the worker exited with code {code}, see {LOG}")
            time.sleep(_LOOK_S)
        lease_ms = self._plan.lease_ms
        heartbeat = _seconds(default_heartbeat_ms(lease_ms))
        rest = f"{SLOTS} slots · lease {_seconds(lease_ms)} · heartbeat {heartbeat}"
        _print_ready(f"worker {self._staff.name}", rest)
        _print_ready("worker log", f"./{LOG}")

    def _serve(self, stack: ExitStack, story: Story) -> None:
        """Open the shop's page and the dashboard, where they are wanted and their packages are installed."""
        if self._plan.port is None:
            return
        try:
            from holdfast.demo.pages import DASHBOARD, DemoServer
        except ImportError as error:
            click.echo(f'  - pages need {error.name}: pip install "holdfast-jobs[web]"')
            return
        port = self._plan.port
        pages = DemoServer(self._place.url, port, story.state, story.wish, story.actions)
        stack.callback(pages.close)
        _print_ready("demo shop", f"{pages.address}/{pages.moved_from(port)}")
        _print_ready("dashboard", f"{pages.address}{DASHBOARD}/")

    def _play(self, story: Story, customers: Customers) -> int:
        try:
            self._show(story)
        except KeyboardInterrupt:
            if self._plan.exit:
                self._close(story, customers)
                return Exit.INTERRUPTED
        return self._close(story, customers)

    def _show(self, story: Story) -> None:
        if self._plan.headless or not (sys.stdin.isatty() and sys.stdout.isatty()):
            TextScreen(story).run()
            return
        from rich.console import Console

        from holdfast.demo.keys import keyboard
        from holdfast.demo.screen import Screen

        with keyboard() as keys:
            Screen(story, keys, Console(highlight=False)).run()

    def _close(self, story: Story, customers: Customers) -> int:
        """Let the worker finish what it runs; a second Ctrl-C kills it. Return what the books say."""
        try:
            if not story.is_settled:
                click.echo("  stopping: the worker finishes its jobs; Ctrl-C again stops it now")
            customers.stop()
            self._staff.ask_to_stop()
            self._staff.wait(self._plan.lease_ms / 1000)
        except KeyboardInterrupt:
            self._staff.kill()
            return Exit.INTERRUPTED
        story.look()
        left = story.figures.queue.live
        if left or not story.told_end:
            click.echo(
                f"  {story.summary()}{f' · {left} jobs left for the next run' if left else ''}"
            )
        return Exit.OK if story.is_sound or not self._plan.exit else Exit.FAILED


def _migrate() -> None:
    """Bring the queue's tables up to date. Raises: SchemaChanged, SchemaTooNew for what another version left."""
    try:
        app.migrate()
    except (SchemaChanged, SchemaTooNew) as error:
        raise type(error)(
            error.message,
            details=error.details,
            help="a demo of another version created it; start over with --fresh",
        ) from None


def _adopt_own() -> None:
    """Take the shop as ours although its folder was moved: workers refuse what looks like a copy."""
    store = app.database.store
    identity = app.database.read(store.schema.identity())
    if identity is not None and identity.recorded_name != identity.name:
        app.database.run(store.schema.adopt(new_id()))


def _print_ready(what: str, rest: str) -> None:
    mark = click.style("✓", fg="green")
    click.echo(f"  {mark} {what:<23} {rest}")


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s" if ms >= 1000 else f"{ms} ms"
