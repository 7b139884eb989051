"""Calls a cycle's handler, sync or async, and counts what it returns."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

from holdfast.core.codec import LARGEST_INT
from holdfast.core.cycle import CycleSpec
from holdfast.core.errors import OutputInvalid
from holdfast.core.redaction import printable
from holdfast.core.signatures import is_async
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.scheduler.runner import RunnerContext, RunnerReport
from holdfast.worker.clock import all_ended
from holdfast.worker.executor import call_catching

_COUNTED = frozenset(RunnerReport.__struct_fields__)


STOP_GRACE_S = 1.0
"""How long an aborted handler may take to stop before it is abandoned."""


class Abandoned(Exception):
    """The handler was aborted and did not stop."""


class CycleResult(NamedTuple):
    """How a handler ended, and whether its caller was cancelled meanwhile."""

    error: BaseException | None
    was_cancelled: bool


WrapRun = Callable[[str, str], AbstractContextManager[object]]
"""Returns a context manager around a run, by the cycle's name and the slot's time; it sees what the handler raises."""


def wrap_nothing(cycle: str, slot: str) -> AbstractContextManager[object]:
    """Wrap a run in nothing."""
    return nullcontext()


async def call_handler(
    spec: CycleSpec, run: CycleRun, context: RunnerContext, threads: Executor, wrap_run: WrapRun
) -> CycleResult:
    """Run the handler until it ends, or is aborted and does not stop in time; never raises."""
    task = asyncio.create_task(
        _call(spec, run, threads, wrap_run), name=f"holdfast cycle {run.name}"
    )
    ended_or_aborted = asyncio.Event()
    task.add_done_callback(lambda _: ended_or_aborted.set())

    def stop() -> None:
        task.cancel()
        ended_or_aborted.set()

    run.on_abort(stop)
    was_cancelled = False
    while not task.done():
        try:
            await ended_or_aborted.wait()
            if not await all_ended(context.clock, [task], STOP_GRACE_S):
                # A thread cannot be stopped from outside, nor a coroutine that ignores its cancellation.
                context.abandoned.append(task)
                return CycleResult(Abandoned("the handler did not stop"), was_cancelled)
        except asyncio.CancelledError:
            was_cancelled = True
            is_late = context.budget.exhausted(context.now_ms())
            run.abort("timeout" if is_late else "shutdown")
    try:
        returned, error = task.result()
        if error is None:
            _count(run, returned)
    except (Exception, asyncio.CancelledError) as failure:
        error = failure
    return CycleResult(error, was_cancelled)


async def _call(
    spec: CycleSpec, run: CycleRun, threads: Executor, wrap_run: WrapRun
) -> tuple[Any, BaseException | None]:
    """Return the result or the error; a SystemExit raised in a task would end this process."""
    try:
        with wrap_run(run.name, run.slot.isoformat()):
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
        # The run's abort flag is all that reaches a thread.
        await asyncio.wait([work])
        return work.result()


def _count(run: CycleRun, answer: object) -> None:
    """Count what a handler returned: nothing, a number of items, a report, or numbers by name."""
    match answer:
        case None:
            if run.counts == RunnerReport():
                run.counts.processed = 1
        case int() if _is_count(answer):
            run.counts.processed += answer
        case RunnerReport():
            run.counts.add(answer)
        case Mapping():
            _count_by_name(run, answer)
        case _:
            raise _invalid_output(run, answer)


def _count_by_name(run: CycleRun, answer: Mapping[Any, Any]) -> None:
    for name, number in answer.items():
        if name in _COUNTED and _is_count(number):
            setattr(run.counts, name, getattr(run.counts, name) + int(number))
        elif name not in _COUNTED and _is_name(name) and _is_number(number):
            run.numbers[name] = number
        else:
            raise _invalid_output(run, answer)


def _is_count(number: object) -> bool:
    return _is_number(number) and cast(float, number) >= 0


def _is_number(number: object) -> bool:
    """Return whether every reader of the record can parse it; a NaN is not below anything."""
    is_numeric = isinstance(number, int | float) and not isinstance(number, bool)
    return is_numeric and abs(cast(float, number)) <= LARGEST_INT


def _is_name(name: object) -> bool:
    return isinstance(name, str) and printable(name) == name


def _invalid_output(run: CycleRun, answer: object) -> OutputInvalid:
    return OutputInvalid(
        f"the cycle {run.name} returned {type(answer).__name__}",
        help="return nothing, a number of items, a RunnerReport, or numbers by name",
    )
