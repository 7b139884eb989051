"""Tasks whose first attempt waits to be killed, for a worker in a process of its own and for the test."""

import os
from pathlib import Path
from typing import Any

from holdfast_celery import Celery


def make_app(folder: Path, url: str | None = None) -> Celery:
    """An application whose tasks leave a file in the folder when they begin, and each attempt a line."""
    app = Celery("killable", url=url)

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

    return app


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return make_app(Path(os.environ["KILLABLE_FOLDER"]))
