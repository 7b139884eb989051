"""The step that runs now, for the function that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import msgspec

from holdfast.core.errors import StepsRefused


class StepInfo(msgspec.Struct, frozen=True):
    """A step that runs.

    `id` is the same in every attempt: the idempotency key for effects outside the database. `fence` grows with every
    claim of the job, for resources that can reject an older one. `attempt` counts the tries of this step, from 1.
    """

    id: str
    fence: int
    attempt: int


running_step: ContextVar[StepInfo | None] = ContextVar("holdfast_step", default=None)

WrapStep = Callable[[StepInfo], AbstractContextManager[object]]
step_wrapper: ContextVar[WrapStep | None] = ContextVar("holdfast_step_wrapper", default=None)
"""What is put around each step of the attempt, as a span is. A middleware sets it."""


class _RunningStep:
    """A step while its code runs."""

    __slots__ = ("_info", "_token")

    def __init__(self, info: StepInfo) -> None:
        self._info = info

    def __enter__(self) -> None:
        self._token = running_step.set(self._info)

    def __exit__(self, *_: object) -> None:
        running_step.reset(self._token)


@contextmanager
def _run_wrapped(info: StepInfo, wrap: WrapStep) -> Iterator[None]:
    with _RunningStep(info), wrap(info):
        yield


def in_step(info: StepInfo) -> AbstractContextManager[None]:
    """Have code run as a step."""
    wrap = step_wrapper.get()
    return _RunningStep(info) if wrap is None else _run_wrapped(info, wrap)


def current_step() -> StepInfo:
    """Return the step that runs now. Raises: StepsRefused outside of one."""
    found = running_step.get()
    if found is None:
        raise StepsRefused("no step runs here", help="call it from the function of a job.step")
    return found
