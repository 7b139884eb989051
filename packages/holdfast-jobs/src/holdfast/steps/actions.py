"""What a call of a durable function yields to have it done, on the loop or in the handler's thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.core.duration import Duration
from holdfast.core.instants import Instant
from holdfast.core.registry import Target
from holdfast.core.retry import Retry
from holdfast.core.steps import ClosedStep, NewStep, StepId
from holdfast.steps.current import StepInfo


class StepOptions(msgspec.Struct, frozen=True):
    """How one step is run."""

    key: Any = None
    retry: Retry | None = None
    timeout: Duration | None = None
    atomic: bool | Callable[[], Any] = False
    undo: Callable[..., Any] | None = None

    @property
    def opens(self) -> Callable[[], Any] | None:
        """What opens the step's transaction, if that is the application's own."""
        return None if isinstance(self.atomic, bool) else self.atomic


class CallFunction(msgspec.Struct, frozen=True):
    """Call the function of a step."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    timeout_s: float | None
    info: StepInfo


class CallAtomic(msgspec.Struct, frozen=True):
    """Call the function of a step in a transaction, and write what `record` makes of its result as the last thing.

    `opens` begins one of the application's own.
    """

    call: CallFunction
    record: Callable[[Any], NewStep]
    opens: Callable[[], Any] | None = None


class WriteRecords(msgspec.Struct, frozen=True):
    """Write records."""

    rows: Sequence[NewStep | ClosedStep]


class StartChildren(msgspec.Struct, frozen=True):
    """Start chains, and record which."""

    target: Target
    inputs: Sequence[Any]
    keys: Sequence[str | None] | None
    options: dict[str, Any]
    record: Callable[[str], NewStep]


class DeclareUndo(msgspec.Struct, frozen=True):
    """Declare that a job that has failed is left to a worker that can undo its steps."""

    type: str


class ParkUntil(msgspec.Struct, frozen=True):
    """Wait, by parking; without a time, until something else wakes the function."""

    id: StepId
    until: Instant | None


Action: TypeAlias = (
    CallFunction | CallAtomic | WriteRecords | StartChildren | DeclareUndo | ParkUntil
)
StepPlan: TypeAlias = Generator[Action, Any, Any]
