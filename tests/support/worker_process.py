"""A worker in a process of its own, for tests that kill it, stop it and start the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.warm_python import LIBRARIES, WarmProcess


@contextmanager
def worker_process(folder: Path, log: str, *words: str, **variables: str) -> Iterator[WarmProcess]:
    """Run `holdfast worker WORD…` in a folder, with a file there for its log; it does not outlive the block."""
    with (folder / log).open("ab") as file:
        given = ["-m", "holdfast", "worker", *words]
        process = LIBRARIES.start(given, folder, os.environ | variables, file)
    try:
        yield process
    finally:
        # Stopped or not: this is heeded at once.
        process.kill()
        process.wait()
