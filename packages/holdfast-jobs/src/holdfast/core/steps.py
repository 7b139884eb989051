"""The records of durable functions: what a job's steps left behind, what it waits for, and the signals sent to it.

A step is known by its name and, where one name is used more than once, by the caller's key or by how often the name
was used before. Records are appended under the job's token; only those that were written open are changed, once.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.core.instants import Instant

StepKind = Literal["step", "sleep", "wait", "run", "cursor", "undo", "failure"]
"""`run` is a call of other chains, `undo` the undoing of a step, `failure` the error after which steps are undone."""

StepState = Literal["open", "done", "failed", "timed_out"]
"""Only sleeps, waits and runs are written open; a wait that nobody signalled in time has timed out."""

UNDO = "undo:"
"""Before the name of a step, the name under which its undoing is recorded. A redrive does both again."""

RETRY = ".retry"
"""After the name of a step, the name of the sleep before it is tried again."""

MAX_STEPS = 10_000
"""Records that one job may have."""
MAX_RECORDED_BYTES = 64 * 1024 * 1024
"""What the records of one job may have together."""
KEEP = "7d"
"""How long a signal waits for a function that takes it."""
MAX_NAME = 200
"""Characters of a step's or a signal's name, and of a key."""


class StepId(msgspec.Struct, frozen=True, gc=False):
    """Which step of its job: a name with the caller's key, or with the number of its use, from 1."""

    name: str
    key: str = ""
    nth: int = 0

    def __str__(self) -> str:
        name = f"{self.name}[{self.key}]" if self.key else self.name
        return name if self.nth <= 1 else f"{name}#{self.nth}"


UNUSED = StepId("unused")
"""The record that names, in its output, those for which the code no longer asked when the function ended.

No step of a handler has neither a key nor a number.
"""


class NewStep(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record to be written, proven by the job's id and token. Its fields are what the statement reads.

    `position` is its place among the job's records. With `lasts_ms` it is open until so long after the statement, by
    the database's clock. `marks` says that it is the first of its attempt: the live row then notes that there are
    records, and counts the attempt as the first one.
    """

    job_id: str
    token: str
    name: str
    key: str
    nth: int
    position: int
    kind: StepKind
    state: StepState
    output: str | None = None
    error: str | None = None
    arguments: int | None = None
    undo: bool = False
    started_at: Instant | None = None
    lasts_ms: int | None = None
    signal: str | None = None
    signal_key: str | None = None
    marks: bool = False


class ClosedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an open record ended, proven as a new one is.

    With `signal_id` that signal is taken, or nothing is written.
    """

    job_id: str
    token: str
    name: str
    key: str
    nth: int
    state: StepState
    output: str | None = None
    error: str | None = None
    signal_id: str | None = None


class WrittenStep(msgspec.Struct, frozen=True, gc=False):
    """A record that the store accepted; `until` is when an open one is over."""

    job_id: str
    name: str
    key: str
    nth: int
    until: Instant | None


class StepRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as a replay and people see it.

    Of an open wait, `signal_id` and `signal_data` are the signal it can take.
    """

    job_id: str
    name: str
    key: str
    nth: int
    position: int
    kind: StepKind
    state: StepState
    output: str | None
    error: str | None
    arguments: int | None
    undo: bool
    fence: int
    started_at: Instant | None
    finished_at: Instant | None
    until: Instant | None
    signal: str | None
    signal_key: str | None
    signal_id: str | None = None
    signal_data: str | None = None

    @property
    def id(self) -> StepId:
        """Which step of its job it is."""
        return StepId(self.name, self.key, self.nth)


Written: TypeAlias = dict[StepId, Instant | StepRecord | None]
"""When each of the records that were written is over, if it is open; the record where one was there already."""


class RecordedBefore(Exception):
    """A record is there already: the answer to an earlier try of the same attempt was lost."""

    def __init__(self, record: StepRecord) -> None:
        """Give the record."""
        super().__init__(f"{record.id} was recorded")
        self.record = record


def is_retry(step: StepRecord) -> bool:
    """Whether a record is the sleep before a step's next try."""
    return step.kind == "sleep" and step.name.endswith(RETRY)


def retried_step(step: StepRecord) -> StepId:
    """Return which step is tried again after a sleep; of any other record, which step it is.

    The sleep's key is the step's, or the number of its use.
    """
    if not is_retry(step):
        return step.id
    name, number = step.name.removesuffix(RETRY), step.key.removeprefix("#")
    if number != step.key and number.isdigit():
        return StepId(name, nth=int(number))
    return StepId(name, step.key)


def failed_call(error: str) -> tuple[str, str, str | None]:
    """Read what is recorded of a call that failed: the chain, how it ended, and its error."""
    return msgspec.json.decode(error, type=tuple[str, str, str | None])


class NewSignal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signal to be appended; of those with the same name, key and `given_id` only the first is."""

    id: str
    name: str
    key: str
    data: str
    keep_ms: int
    given_id: str | None = None
    broadcast: bool = False


class SignalRecord(msgspec.Struct, frozen=True):
    """A signal as people see it; `taken_by` is the job whose wait it ended."""

    id: str
    name: str
    key: str
    data: str
    given_id: str | None
    broadcast: bool
    at: Instant
    until: Instant
    taken_by: str | None


class WaitRecord(msgspec.Struct, frozen=True):
    """An open wait as people see it."""

    job_id: str
    chain_id: str
    type: str
    step: str
    signal: str
    signal_key: str
    since: Instant
    until: Instant | None
