"""Tasks whose first attempt waits to be killed, for a worker in a process of its own and for the test."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast_celery import Celery
from holdfast_celery.attempts import TaskRunner


class Killable(Celery):
    """An application that is killed where the tests want it."""


def make_app(folder: Path, url: str | None = None) -> Celery:
    """An application whose tasks leave a file in the folder when they begin, and each attempt a line."""
    app = Killable("killable", url=url)

    def wait_for_death(name: str, retries: int = 0) -> None:
        with (folder / "attempts").open("a") as file:
            print(name, retries, os.getpid(), file=file)
        begun = folder / f"begun.{name}"
        if not begun.exists():
            begun.touch()
            # A named pipe that no one writes: only a signal ends this.
            (folder / "gate").read_text()

    @app.task(name="plain")
    def plain(number: int) -> int:
        wait_for_death("plain")
        return number + 1

    @app.task(name="bound", bind=True, max_retries=0)
    def bound(self: Any, number: int) -> list[int]:
        wait_for_death("bound", self.request.retries)
        return [number, self.request.retries]

    @app.task(name="add")
    def add(number: int, more: int = 1) -> int:
        return number + more

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        wait_for_death("total")
        return sum(numbers)

    add_linked_tasks(app, folder, wait_for_death)
    return app


def add_linked_tasks(app: Celery, folder: Path, wait_for_death: Callable[[str], None]) -> None:
    """Add tasks whose worker is killed at their end, and what to link to them, which leaves a line."""

    class DiesAtItsEnd(TaskRunner):
        """Waits to be killed before the transaction commits that ends a task, with all that it starts."""

        def run(self, job: Any) -> Any:
            value = super().run(job)
            if job.type == "completes":
                wait_for_death(job.type)
            return value

        def end_failed(self, job: Any) -> None:
            super().end_failed(job)
            if job.type == "fails":
                wait_for_death(job.type)

    type(app).runner_class = DiesAtItsEnd

    @app.task(name="completes")
    def completes(number: int) -> int:
        return number + 1

    @app.task(name="fails")
    def fails(number: int) -> None:
        raise ValueError(f"no {number}")

    @app.task(name="after")
    def after(*args: Any) -> None:
        with (folder / "after").open("a") as file:
            print(*(each for each in args if isinstance(each, int | ValueError)), file=file)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return make_app(Path(os.environ["KILLABLE_FOLDER"]))
