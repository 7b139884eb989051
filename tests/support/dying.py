"""Processes that die with -9 at a chosen step of their work.

Forked from a process that has imported everything and opened nothing, so that a hundred deaths cost no hundred starts.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

ROOT = Path(__file__).parents[2]


class Death(msgspec.Struct):
    """One process: what it does, at which step it dies, where it logs its steps, and how far its clock is ahead."""

    url: str
    log: str
    work: str
    step: int
    ahead_us: int


class Steps:
    """Counts what is done, and dies at the chosen step."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._log = Path(death.log).open("ab", buffering=0)  # noqa: SIM115
        self._passed = 0

    def take(self, name: str) -> None:
        """Log one more step, and take it or die."""
        self._passed += 1
        self._log.write(f"{name}\n".encode())
        if self._passed == self._death.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, engine: Engine) -> None:
        """Take a step for each of SQLAlchemy's statements, before each commit and after it."""
        event.listen(engine, "before_cursor_execute", lambda *_: self.take("statement"))
        event.listen(engine, "commit", lambda _: self.take("commit"))
        event.listen(Session, "after_commit", lambda _: self.take("committed"))

    def wrap(self, owner: Any, name: str) -> None:
        """Take a step before a coroutine function of a class or module, and one after it."""
        call = getattr(owner, name)

        async def stepping(*given: Any, **options: Any) -> Any:
            self.take(name)
            answer = await call(*given, **options)
            self.take(f"{name} done")
            return answer

        setattr(owner, name, stepping)


class DyingProcesses:
    """The process from which others are forked, each to die at its step."""

    def __init__(self, module: str, url: str, log: Path, environment: Mapping[str, str]) -> None:
        """Start `python -m module`, which calls `fork_for_each_line`."""
        self._url = url
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    async def die(self, work: str, step: int, ahead_us: int = 0) -> list[str] | None:
        """Let a process die; return its steps up to the one it died at, or None if it ended well before."""
        self._log.write_bytes(b"")
        death = Death(self._url, str(self._log), work, step, ahead_us)
        code = await asyncio.to_thread(self._ask, death)
        assert code in (0, -signal.SIGKILL)
        return None if code == 0 else self._log.read_text().splitlines()

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _ask(self, death: Death) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(death) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def fork_for_each_line(work: Callable[[Death], Coroutine[Any, Any, int]]) -> None:
    """Fork a process for each line of stdin, and answer with how it ended."""
    for line in sys.stdin.buffer:
        death = msgspec.json.decode(line, type=Death)
        child = os.fork()
        if child == 0:
            os._exit(asyncio.run(work(death)))
        _, status = os.waitpid(child, 0)
        os.write(sys.stdout.fileno(), b"%d\n" % os.waitstatus_to_exitcode(status))
