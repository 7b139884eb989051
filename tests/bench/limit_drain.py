"""A limit loop in a process of its own: drains, and says when it began and ended."""

from __future__ import annotations

import sys
import time

from tests.bench.limit_loop import LimitLoop

if __name__ == "__main__":
    with LimitLoop(sys.argv[1], int(sys.argv[2])) as loop:
        begun = time.monotonic()
        loop.drain()
        print(begun, time.monotonic())
