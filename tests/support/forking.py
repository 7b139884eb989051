"""Workers that die at a chosen moment, forked one for each request from a process that has imported everything.

It has no threads and no connections, so that a hundred deaths cost no hundred starts.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def serve_forks(kind: type[T], work: Callable[[T], Coroutine[Any, Any, int]]) -> None:
    """Fork a worker for each line of standard input, and answer with how it ended."""
    for line in sys.stdin.buffer:
        death = msgspec.json.decode(line, type=kind)
        child = os.fork()
        if child == 0:
            os._exit(asyncio.run(work(death)))
        _, status = os.waitpid(child, 0)
        os.write(sys.stdout.fileno(), b"%d\n" % os.waitstatus_to_exitcode(status))


class Forker:
    """A process that runs `serve_forks`."""

    def __init__(
        self, module: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    async def dies(self, death: msgspec.Struct) -> bool:
        """Say whether a worker came to its death, or ended well before."""
        code = await asyncio.to_thread(self._ask, death)
        assert code in (0, -signal.SIGKILL)
        return code != 0

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _ask(self, death: msgspec.Struct) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(death) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())
