"""One program on both sides: Celery itself, with a worker in a thread, and Holdfast's look-alike on each store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any

from holdfast_testing.kit import Kit
from tests.support.until import PATIENCE_S

_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Side:
    """An application of one side, its modules by Celery's names, and how to have done what is due."""

    app: Any
    package: str
    run: Callable[[], object]

    def task(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """The decorator of the application."""
        decorator: Callable[[Callable[..., Any]], Any] = self.app.task(**options)
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
    app.conf.update(task_default_queue=name, worker_hijack_root_logger=False)
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
        yield Side(app, "celery", start_worker)
    app.close()


@contextmanager
def holdfast_side(url: str) -> Iterator[Side]:
    """The look-alike, on a database of its own."""
    app = import_module("holdfast_celery").Celery("shop", url=url)
    with closing(app), closing(Kit(app, url)) as kit:
        yield Side(app, "holdfast_celery", kit.run_until_idle)
