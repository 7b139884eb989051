"""A child process that stores an object and is killed at the n-th thing it asks of the operating system."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast_files import open_files

STEPS = ("close", "fsync", "mkdir", "open", "replace", "unlink")


def main(root: str, key: str, content: str, limit: int) -> None:
    """Store a content, or die before the call of that number."""
    files = open_files(Path(root))
    count = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return step

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    files.put(key, content.encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
