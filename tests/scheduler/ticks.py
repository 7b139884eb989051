"""Ticks of hand-made runners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.scheduler.runner import RunnerContext, RunnerReport
from holdfast.scheduler.tick import Tick

MakeTick = Callable[..., Tick]


@dataclass(frozen=True, slots=True)
class FunctionRunner:
    """A runner made of a function."""

    name: str
    function: Callable[[RunnerContext], Awaitable[RunnerReport]]
    max_ms: int | None = None

    async def run(self, context: RunnerContext) -> RunnerReport:
        return await self.function(context)


class Log:
    """Runners that write down that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def runner(self, name: str, report: RunnerReport | None = None) -> FunctionRunner:
        async def run(context: RunnerContext) -> RunnerReport:
            self.ran.append(name)
            return report or RunnerReport()

        return FunctionRunner(name, run)


def failing(context: RunnerContext) -> Any:
    """Be a runner that cannot."""
    raise RuntimeError("token=hunter2 broke")
