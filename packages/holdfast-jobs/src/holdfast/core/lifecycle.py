"""The life of a job as data: every move from every state, and what it asks of the one who makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.core.errors import WrongState

State = Literal["blocked", "pending", "running", "completed", "failed", "cancelled"]
ChainState = State | Literal["removed"]
"""The state of a chain; `removed` when its key outlived what was known of it."""
TerminalState = Literal["completed", "failed", "cancelled"]
STATES: tuple[State, ...] = ("blocked", "pending", "running", "completed", "failed", "cancelled")
TERMINAL: frozenset[State] = frozenset({"completed", "failed", "cancelled"})

EXPIRED = "Expired: no attempt began in time"

Move = Literal[
    "claim",
    "renew",
    "complete",
    "continue",
    "fail",
    "retry",
    "snooze",
    "release",
    "park",
    "cancel_self",
    "reap",
    "unblock",
    "trigger",
    "cancel",
    "complete_outside",
    "redrive",
    "delete",
]


@dataclass(frozen=True, slots=True)
class Transition:
    """One allowed move."""

    source: State
    move: Move
    target: State | None


TRANSITIONS: tuple[Transition, ...] = (
    Transition("pending", "claim", "running"),
    Transition("running", "renew", "running"),
    Transition("running", "complete", "completed"),
    Transition("running", "continue", "completed"),
    Transition("running", "fail", "failed"),
    Transition("running", "retry", "pending"),
    Transition("running", "snooze", "pending"),
    Transition("running", "release", "pending"),
    # Without a time it is blocked, as a job that waits for others is.
    Transition("running", "park", "pending"),
    Transition("running", "cancel_self", "cancelled"),
    Transition("running", "reap", "pending"),
    Transition("blocked", "unblock", "pending"),
    Transition("pending", "trigger", "pending"),
    Transition("blocked", "cancel", "cancelled"),
    Transition("pending", "cancel", "cancelled"),
    Transition("running", "cancel", "cancelled"),
    Transition("blocked", "complete_outside", "completed"),
    Transition("pending", "complete_outside", "completed"),
    Transition("running", "complete_outside", "completed"),
    Transition("failed", "redrive", "pending"),
    *(Transition(state, "delete", None) for state in STATES),
)


def sources(move: Move) -> tuple[State, ...]:
    """Return the states that a move is allowed from."""
    return tuple(t.source for t in TRANSITIONS if t.move == move)


@dataclass(frozen=True, slots=True)
class Command:
    """A move that people ask for, as every surface words it, and the states it is allowed from.

    Of several jobs those that can be moved are, and the others are left alone; when none can be, it is refused.
    """

    verb: str
    states: tuple[State, ...]

    def allows(self, state: str) -> bool:
        """Whether it can be given for a job in this state."""
        return state in self.states

    def refusal(self, found: Sequence[tuple[str, State]], noun: str = "job") -> WrongState:
        """Return why none of these can be moved."""
        return WrongState(
            f"cannot {self.verb} a {noun} that is {found[0][1]}",
            details=[f"{noun} {id} is {state}" for id, state in found[:5]],
            rule=f"only {' or '.join(self.states)} {noun}s",
        )


RETRY = Command("retry", sources("redrive"))
REDRIVE = Command("redrive", sources("redrive"))
"""The same, where jobs are called dead letters."""
CANCEL = Command("cancel", sources("cancel"))
RUN_NOW = Command("run", sources("trigger"))
COMPLETE = Command("complete", sources("complete_outside"))
DROP = Command("drop", sources("redrive"))
DELETE = Command("delete", sources("delete"))

JOB_COMMANDS: Mapping[str, Command] = {"retry": RETRY, "cancel": CANCEL, "run_now": RUN_NOW}
CHAIN_COMMANDS: Mapping[str, Command] = {"cancel": CANCEL, "delete": DELETE}
"""Commands by the name that actions, forms and routes give them: every surface offers those that a state allows."""
