"""Processes of an application that die with -9 at a chosen step of their work."""

import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from tests.support.forking import Forker, serve_forks

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
        self._is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count no steps in the block."""
        self._is_paused = True
        yield
        self._is_paused = False

    def take(self, name: str) -> None:
        """Log one more step, and take it or die."""
        if self._is_paused:
            return
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
        self._forker = Forker(module, ROOT, environment)

    async def die(self, work: str, step: int, ahead_us: int = 0) -> list[str] | None:
        """Let a process die; return its steps up to the one it died at, or None if it ended well before."""
        self._log.write_bytes(b"")
        death = Death(self._url, str(self._log), work, step, ahead_us)
        has_died = await self._forker.dies(death)
        return self._log.read_text().splitlines() if has_died else None

    def close(self) -> None:
        """End it."""
        self._forker.close()


def fork_for_each_line(work: Callable[[Death], Coroutine[Any, Any, int]]) -> None:
    """Fork a process for each line of stdin, and answer with how it ended."""
    serve_forks(Death, work)
