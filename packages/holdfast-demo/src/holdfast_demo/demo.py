"""One run of the demo: set up, follow the story, stop, and check the books."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from holdfast.cli.exit_codes import Exit
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.core.errors import SchemaChanged, SchemaTooNew
from holdfast.core.lease import default_heartbeat_ms
from holdfast.storage.id_generator import new_id
from holdfast.version import VERSION
from holdfast_demo import tables
from holdfast_demo.actors import SLOTS, Customers, WorkerProcess
from holdfast_demo.demo_database import DemoDatabase
from holdfast_demo.local_application import print_ready
from holdfast_demo.remembered_signals import (
    forget_interrupts,
    raise_on_signals,
    sleep_unless_interrupted,
)
from holdfast_demo.screen import Screen, TextScreen, keyboard
from holdfast_demo.shop import app
from holdfast_demo.story import DemoOptions, Story, set_paused

LOG = Path("holdfast-demo.log")

_START_S = 60.0
_POLL_S = 0.05


class Demo:
    """One run of the demo."""

    def __init__(self, options: DemoOptions, database: DemoDatabase, guard: OrphanGuard) -> None:
        self._options = options
        self._database = database
        self._worker = WorkerProcess(database.url, options.lease_ms, LOG, guard)

    def run(self) -> int:
        """Run the demo; return the exit code."""
        version = ".".join(VERSION.split(".")[:2])
        click.echo(f"holdfast {version} · demo shop · {self._database.name}")
        raise_on_signals(signal.SIGINT)
        with ExitStack() as stack:
            connection = stack.enter_context(tables.connect(self._database.url))
            stack.callback(app.close)
            self._open(connection)
            customers = Customers(self._database.url, self._options.rate, click.echo)
            stack.callback(customers.close)
            # Before the customers: one of them may wait for a lock that the worker holds.
            stack.callback(self._worker.kill)
            self._start_worker()
            story = Story(self._options, self._worker, customers, connection)
            self._serve(stack, story)
            story.order(self._options.orders)
            return self._play(story, customers)

    def _open(self, connection: tables.Connection) -> None:
        started = time.monotonic()
        _migrate()
        tables.open_shop(connection)
        set_paused(False)
        _adopt_moved()
        print_ready("schema ready", f"{(time.monotonic() - started) * 1000:.0f} ms")

    def _start_worker(self) -> None:
        self._worker.start()
        deadline = time.monotonic() + _START_S
        while self._worker.worker_id() is None and time.monotonic() < deadline:
            code = self._worker.poll()
            if code is not None:
                raise click.ClickException(f"the worker exited with code {code}, see {LOG}")
            sleep_unless_interrupted(_POLL_S)
        lease_ms = self._options.lease_ms
        heartbeat = _seconds(default_heartbeat_ms(lease_ms))
        rest = f"{SLOTS} slots · lease {_seconds(lease_ms)} · heartbeat {heartbeat}"
        print_ready(f"worker {self._worker.name}", rest)
        print_ready("worker log", f"./{LOG}")

    def _serve(self, stack: ExitStack, story: Story) -> None:
        """Serve the shop's page and the dashboard, if wanted and installed."""
        if self._options.port is None:
            return
        try:
            from holdfast_demo.pages import DASHBOARD, DemoServer
        except ImportError as error:
            click.echo(f'  - pages need {error.name}: pip install "holdfast-jobs[web]"')
            return
        port = self._options.port
        pages = DemoServer(self._database.url, port, story.state, story.request, story.actions)
        stack.callback(pages.close)
        print_ready("demo shop", f"{pages.address}/{pages.port_note(port)}")
        print_ready("dashboard", f"{pages.address}{DASHBOARD}/")

    def _play(self, story: Story, customers: Customers) -> int:
        try:
            self._show(story)
        except KeyboardInterrupt:
            forget_interrupts()
            if self._options.exit:
                self._close(story, customers)
                return Exit.INTERRUPTED
        return self._close(story, customers)

    def _show(self, story: Story) -> None:
        if self._options.headless or not (sys.stdin.isatty() and sys.stdout.isatty()):
            TextScreen(story).run()
            return
        with keyboard() as keys:
            Screen(story, keys, Console(highlight=False)).run()

    def _close(self, story: Story, customers: Customers) -> int:
        """Let the worker finish its jobs, unless Ctrl-C is pressed again; return the exit code."""
        try:
            if not story.is_settled:
                click.echo("  stopping: the worker finishes its jobs; Ctrl-C again stops it now")
            customers.stop()
            self._worker.terminate()
            self._worker.wait(self._options.lease_ms / 1000)
        except KeyboardInterrupt:
            self._worker.kill()
            return Exit.INTERRUPTED
        story.refresh()
        left = story.figures.queue.live
        if left or not story.has_noted_end:
            click.echo(
                f"  {story.summary()}{f' · {left} jobs left for the next run' if left else ''}"
            )
        return Exit.OK if story.is_sound or not self._options.exit else Exit.FAILED


def _migrate() -> None:
    """Migrate the schema. Raises: SchemaChanged, SchemaTooNew if another version created it."""
    try:
        app.migrate()
    except (SchemaChanged, SchemaTooNew) as error:
        raise type(error)(
            error.message,
            details=error.details,
            help="a demo of another version created it; start over with --fresh",
        ) from None


def _adopt_moved() -> None:
    """Adopt the database if its directory was moved: workers refuse what looks like a copy."""
    store = app.database.store
    identity = app.database.read(store.schema.identity())
    if identity is not None and identity.copied:
        app.database.run(store.schema.adopt(new_id()))


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s" if ms >= 1000 else f"{ms} ms"
