"""One program on both sides: Celery itself, with a worker in a thread, and Holdfast's look-alike on each store."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.worker.options import WorkerOptions
from holdfast_testing.kit import Kit
from tests.support.until import PATIENCE_S, wait_until

_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Side:
    """An application of one side, its modules by Celery's names, and how to have done what is due."""

    app: Any
    package: str
    run: Callable[[], object]
    work: Callable[[], AbstractContextManager[None]]
    """Run a worker with several threads until the block ends."""
    beat: Callable[[str], object]
    """Have an entry of the beat schedule be due once."""

    @property
    def is_celery(self) -> bool:
        """Whether this is Celery itself."""
        return self.package == "celery"

    def task(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """The decorator of the application."""
        # Celery gives each task to all applications that are made later, in place of theirs of the same name.
        apart = {"shared": False} if self.is_celery else {}
        decorator: Callable[[Callable[..., Any]], Any] = self.app.task(**apart, **options)
        return decorator

    def module(self, name: str = "") -> Any:
        """A module of this side: `celery.result` is `holdfast_celery.result`."""
        return import_module(f"{self.package}.{name}" if name else self.package)

    def get(self, result: Any, **options: Any) -> Any:
        """The value of a task that was started."""
        self.run()
        return result.get(timeout=PATIENCE_S, **options)

    def end(self, result: Any) -> Any:
        """The same result, once its task has ended."""
        self.get(result, propagate=False)
        return result


@contextmanager
def celery_side() -> Iterator[Side]:
    """Celery, with its broker and backend in memory."""
    celery, testing = import_module("celery"), import_module("celery.contrib.testing.worker")
    # Brokers and backends in memory are shared by all applications of a process.
    name = f"shop{next(_NUMBERS)}"
    app = celery.Celery(name, broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.update(task_default_queue=name, control_exchange=name, worker_hijack_root_logger=False)
    with ExitStack() as running:

        def start_worker() -> None:
            # A worker knows the tasks that were there when it started.
            if name not in started:
                started.add(name)
                worker = testing.start_worker(
                    app, perform_ping_check=False, shutdown_timeout=PATIENCE_S
                )
                running.enter_context(worker)

        started: set[str] = set()
        yield Side(app, "celery", start_worker, partial(_celery_worker, app), partial(_beat, app))
    app.close()


@contextmanager
def _celery_worker(app: Any) -> Iterator[None]:
    testing = import_module("celery.contrib.testing.worker")
    with testing.start_worker(
        app,
        concurrency=3,
        pool="threads",
        perform_ping_check=False,
        shutdown_timeout=PATIENCE_S,
        hostname="first@here",
    ):
        yield


def _beat(app: Any, name: str) -> None:
    """Have Celery's own scheduler find an entry that was last sent long ago."""
    scheduler = import_module("celery.beat").Scheduler(app)
    entry = scheduler.schedule[name]
    entry.last_run_at -= timedelta(days=400)
    assert scheduler.is_due(entry).is_due
    scheduler.apply_entry(entry, producer=scheduler.producer)
    scheduler.close()


@contextmanager
def holdfast_side(url: str) -> Iterator[Side]:
    """The look-alike, on a database of its own."""
    app = import_module("holdfast_celery").Celery("shop", url=url)
    with closing(app), closing(Kit(app, url)) as kit:
        yield Side(
            app,
            "holdfast_celery",
            kit.run_until_idle,
            partial(running_worker, app),
            lambda name: kit.run_cycle(import_module("holdfast_celery.schedules").cycle_name(name)),
        )


@contextmanager
def running_worker(app: Any, **options: Any) -> Iterator[None]:
    """A worker of an application of ours, in threads of this process, until the block ends."""
    running: list[tuple[asyncio.AbstractEventLoop, Any]] = []

    async def work() -> None:
        worker = app.make_worker(WorkerOptions(name="first", slots=3, poll_ms=50, **options))
        running.append((asyncio.get_running_loop(), worker))
        await worker.run()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        wait_until(lambda: running and app.workers.list())
        yield
    finally:
        (loop, worker) = wait_until(lambda: running)[0]
        loop.call_soon_threadsafe(worker.stop)
        thread.join(PATIENCE_S)
    assert not thread.is_alive()


@contextmanager
def open_side(request: pytest.FixtureRequest, folder: Path) -> Iterator[Side]:
    """The side that a fixture is asked for."""
    if request.param == "celery":
        with celery_side() as made:
            made.app.conf.broker_transport_options = {"polling_interval": 0.01}
            yield made
    elif request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        copy = shutil.copy(template, folder / "holdfast.db")
        with holdfast_side(f"sqlite:///{copy}") as made:
            yield made
    else:
        with (
            request.getfixturevalue("postgres_server").database() as url,
            holdfast_side(url) as made,
        ):
            yield made
