"""Calls a cycle's handler in its colour and reads what it answers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

from holdfast.core.codec import LARGEST_INT
from holdfast.core.cycle import CycleSpec
from holdfast.core.error_text import printable
from holdfast.core.errors import OutputInvalid
from holdfast.core.signatures import is_async
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.scheduler.runner import RunnerContext, RunnerReport
from holdfast.worker.clock import all_ended
from holdfast.worker.executor import call_catching

_COUNTED = frozenset(RunnerReport.__struct_fields__)


OBEY_S = 1.0
"""How long a handler that was told to stop may take to do so, before it is abandoned."""


class Abandoned(Exception):
    """The handler was told to stop and did not."""


class Handled(NamedTuple):
    """How a handler ended, and whether whoever called it was cancelled meanwhile."""

    error: BaseException | None
    was_cancelled: bool


Around = Callable[[str, str], AbstractContextManager[object]]
"""Makes what is to be open around a run, by its cycle's name and its slot's time; it sees what the handler raises."""


def nothing_around(cycle: str, slot: str) -> AbstractContextManager[object]:
    """Leave runs as they are."""
    return nullcontext()


async def handle(
    spec: CycleSpec, run: CycleRun, context: RunnerContext, threads: Executor, around: Around
) -> Handled:
    """Run the handler to its end, or until it has not obeyed for long enough; never raises."""
    task = asyncio.create_task(_call(spec, run, threads, around), name=f"holdfast cycle {run.name}")
    told = asyncio.Event()
    task.add_done_callback(lambda _: told.set())

    def stop() -> None:
        task.cancel()
        told.set()

    run.when_aborted(stop)
    was_cancelled = False
    while not task.done():
        try:
            await told.wait()
            if not await all_ended(context.clock, [task], OBEY_S):
                # A thread cannot be stopped from outside, nor a coroutine that does not want to.
                context.left_behind.append(task)
                return Handled(Abandoned("the handler did not stop when told to"), was_cancelled)
        except asyncio.CancelledError:
            was_cancelled = True
            is_late = context.budget.exhausted(context.now_ms())
            run.abort("timeout" if is_late else "shutdown")
    try:
        answer, error = task.result()
        if error is None:
            _count(run, answer)
    except (Exception, asyncio.CancelledError) as failure:
        error = failure
    return Handled(error, was_cancelled)


async def _call(
    spec: CycleSpec, run: CycleRun, threads: Executor, around: Around
) -> tuple[Any, BaseException | None]:
    """Return the answer or the error: one that ends processes would leave the task and end this one."""
    try:
        with around(run.name, run.slot.isoformat()):
            if is_async(spec.handler):
                return await spec.handler(run), None
            answer, error = await _in_thread(spec, run, threads)
            if error is not None:
                raise error
            return answer, None
    except BaseException as error:
        return None, error


async def _in_thread(
    spec: CycleSpec, run: CycleRun, threads: Executor
) -> tuple[Any, BaseException | None]:
    context = contextvars.copy_context()
    work = asyncio.get_running_loop().run_in_executor(
        threads, context.run, call_catching, spec.handler, (run,)
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # The handler was told by its run's signal; nothing else reaches a thread.
        await asyncio.wait([work])
        return work.result()


def _count(run: CycleRun, answer: object) -> None:
    """Read an answer: nothing, a number of items, a report, or numbers by name."""
    match answer:
        case None:
            if run.counts.report() == RunnerReport():
                run.counts.processed = 1
        case int() if _is_count(answer):
            run.counts.processed += answer
        case RunnerReport():
            run.counts.add(answer)
        case Mapping():
            _count_by_name(run, answer)
        case _:
            raise _unreadable(run, answer)


def _count_by_name(run: CycleRun, answer: Mapping[Any, Any]) -> None:
    for name, number in answer.items():
        if name in _COUNTED and _is_count(number):
            setattr(run.counts, name, getattr(run.counts, name) + int(number))
        elif name not in _COUNTED and _is_name(name) and _is_number(number):
            run.numbers[name] = number
        else:
            raise _unreadable(run, answer)


def _is_count(number: object) -> bool:
    return _is_number(number) and cast(float, number) >= 0


def _is_number(number: object) -> bool:
    """Say whether every reader of the record can read it; a NaN is not below anything."""
    is_numeric = isinstance(number, int | float) and not isinstance(number, bool)
    return is_numeric and abs(cast(float, number)) <= LARGEST_INT


def _is_name(name: object) -> bool:
    return isinstance(name, str) and printable(name) == name


def _unreadable(run: CycleRun, answer: object) -> OutputInvalid:
    return OutputInvalid(
        f"the cycle {run.name} answered with {type(answer).__name__}",
        help="return nothing, a number of items, a RunnerReport, or numbers by name",
    )
