"""The step that runs now, for the function that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


@contextmanager
def in_step(info: StepInfo) -> Iterator[None]:
    """Have code run as a step."""
    token, wrap = running_step.set(info), step_wrapper.get()
    try:
        with nullcontext() if wrap is None else wrap(info):
            yield
    finally:
        running_step.reset(token)


def current_step() -> StepInfo:
    """Return the step that runs now. Raises: StepsRefused outside of one."""
    found = running_step.get()
    if found is None:
        raise StepsRefused("no step runs here", help="call it from the function of a job.step")
    return found
