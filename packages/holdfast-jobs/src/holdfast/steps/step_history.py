"""What is recorded of one durable function, as its attempt sees it: what earlier attempts left, and what it adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.codec import TypeCodec
from holdfast.core.errors import (
    HoldfastError,
    InputUnreadable,
    OutputInvalid,
    SealError,
    StepUnreadable,
    TooManySteps,
    words_of,
)
from holdfast.core.instants import Instant
from holdfast.core.records import BlockerRecord
from holdfast.core.redaction import clean_error
from holdfast.core.sealing import SEALED_TEXT, is_sealed, open_output, seal_output
from holdfast.core.steps import (
    MAX_RECORDED_BYTES,
    MAX_STEPS,
    ClosedStep,
    NewStep,
    StepId,
    StepKind,
    StepRecord,
    StepState,
    Written,
    is_retry,
)
from holdfast.core.upgrades import upgrade_result
from holdfast.steps.actions import WriteRecords
from holdfast.worker.attempt import Attempt

if TYPE_CHECKING:
    from holdfast.steps.functions import Functions

FAILURE = StepId("failure")
"""As with `UNUSED`, no step of a handler has this id."""

_SHAPES = {
    "{": "an object",
    "[": "a list",
    '"': "a text",
    "n": "nothing",
    "t": "true",
    "f": "false",
}


class StepHistory:
    """The records of one attempt's function, and how results become text and are read again."""

    def __init__(
        self,
        functions: Functions,
        attempt: Attempt,
        reach: Callable[[str, StepId | str], None],
        records: Iterable[StepRecord],
        children: Iterable[BlockerRecord],
    ) -> None:
        """`records` are what earlier attempts left, `children` how the chains fare that it called."""
        self._functions = functions
        self._attempt = attempt
        self._reach = reach
        self.records = {each.id: each for each in records}
        self.is_replay = bool(self.records)
        self.children = {each.chain_id: each for each in children}
        self.unasked = {each.id: each for each in self.records.values() if _is_asked_for(each)}
        self._lazy: list[NewStep | ClosedStep] = []
        self._position = max((each.position for each in self.records.values()), default=0)
        self._bytes = sum(len(each.output or "") for each in self.records.values())
        self._has_marked = bool(attempt.claimed.steps) and attempt.claimed.attempt <= 1
        self.is_failed = bool(attempt.claimed.failing) or FAILURE in self.records
        """Whether the function had failed before this attempt, which is replayed to be undone."""
        self.recorded = 0
        self.signals_taken = 0
        self.failures: list[tuple[StepId, str | None]] = []
        self.stopped: StepUnreadable | SealError | None = None
        """Why the code does not fit what was recorded; set even if the handler swallows it."""

    @property
    def failure(self) -> str | None:
        """The error that the function failed with before it was undone."""
        found = self.records.get(FAILURE)
        return None if found is None else found.error

    def with_undo(self) -> list[StepRecord]:
        """The recorded steps that are to be undone if the function fails."""
        return [each for each in self.records.values() if each.undo and each.state == "done"]

    def is_behind(self) -> bool:
        """Whether an earlier attempt came to wait where this one has not come yet."""
        return any(each.state == "open" for each in self.unasked.values())

    def take_ends(self) -> list[ClosedStep]:
        """Return the ends of open records that were put off."""
        ends = [each for each in self._lazy if isinstance(each, ClosedStep)]
        self._lazy = []
        return ends

    def find(self, id: StepId, kind: StepKind) -> StepRecord | None:
        """Return the record of a call, if there is one. Raises: StepUnreadable when it is of another kind."""
        self.unasked.pop(id, None)
        record = self.records.get(id)
        if record is not None and record.kind != kind:
            raise self.stop(f"{id} was recorded as a {record.kind}, and is a {kind} in this code")
        return record

    def new(
        self,
        id: StepId,
        kind: StepKind,
        state: StepState,
        *,
        output: str | None = None,
        error: str | None = None,
        arguments: int | None = None,
        undo: bool = False,
        started_at: Instant | None = None,
        lasts_ms: int | None = None,
        signal: str | None = None,
        signal_key: str | None = None,
    ) -> NewStep:
        """Return a record to be written, in its place behind the others."""
        claimed = self._attempt.claimed
        self._position += 1
        place = (claimed.id, claimed.token, id.name, id.key, id.nth, self._position)
        came_of_it = (kind, state, output, error, arguments, undo)
        started = self._functions.now(self._attempt) if started_at is None else started_at
        return NewStep(*place, *came_of_it, started, lasts_ms, signal, signal_key)

    def make_end(
        self,
        record: StepRecord,
        state: StepState,
        output: str | None = None,
        error: str | None = None,
    ) -> ClosedStep:
        """Return how an open record ended."""
        claimed = self._attempt.claimed
        return ClosedStep(
            claimed.id, claimed.token, record.name, record.key, record.nth, state, output, error
        )

    def close(self, row: ClosedStep) -> None:
        """End an open record; that is written with the next one, since a replay would come to the same end."""
        self._lazy.append(row)
        self.remember([row], {})

    def write(self, rows: Sequence[NewStep]) -> WriteRecords:
        """Return the writing of records, with what was put off until now."""
        lazy, self._lazy = self._lazy, []
        return WriteRecords([*lazy, *map(self.mark, rows)])

    def mark(self, row: NewStep) -> NewStep:
        """Have the first record of an attempt noted in the live row; it is that until one was written."""
        return row if self._has_marked else msgspec.structs.replace(row, marks=True)

    def remember(self, rows: Sequence[NewStep | ClosedStep], written: Written) -> None:
        """Note what the store accepted: its answer says until when, or what was there already."""
        for row in rows:
            id = StepId(row.name, row.key, row.nth)
            until = written.get(id)
            if isinstance(row, NewStep) and not self._has_marked:
                self._has_marked = True
                self._attempt.claimed.steps = True
                self._attempt.claimed.attempt = 1
            if isinstance(until, StepRecord):
                self.records[id] = until
                continue
            if isinstance(row, ClosedStep):
                known = self.records[id]
                self.signals_taken += row.signal_id is not None
                output = known.output if row.output is None else row.output
                self.records[id] = msgspec.structs.replace(
                    known, state=row.state, output=output, error=row.error
                )
                continue
            self._bytes += len(row.output or "")
            self.recorded += 1
            if row.kind == "step" and row.state == "failed":
                self.failures.append((id, row.error))
            place = (row.job_id, row.name, row.key, row.nth, row.position)
            came_of_it = (row.kind, row.state, row.output, row.error, row.arguments, row.undo)
            when = (self._attempt.claimed.fence, row.started_at, None, until)
            awaited = (row.signal, row.signal_key)
            self.records[id] = StepRecord(*(place + came_of_it + when + awaited))
            self._reach("after {} was recorded", id)

    def encode(self, codec: TypeCodec, value: Any) -> str:
        """Return a result as it is stored. Raises: OutputInvalid, PayloadTooLarge."""
        return self.seal(codec.encode(value, self._functions.output_limit))

    def seal(self, text: str) -> str:
        """Return a text as it is stored."""
        attempt = self._attempt
        if not attempt.sealed or is_sealed(text):
            return text
        return seal_output(
            attempt.type.sealer, text, attempt.claimed.chain_id, attempt.claimed.type
        )

    def open(self, record: StepRecord) -> str:
        """Return what was recorded, in clear. Raises: SealError."""
        text, claimed = record.output or "null", self._attempt.claimed
        try:
            return open_output(self._attempt.type.sealer, text, claimed.chain_id)
        except SealError as error:
            error.job_id, self.stopped = claimed.id, error
            raise

    def decode(self, record: StepRecord, codec: TypeCodec) -> Any:
        """Return a recorded result. Raises: StepUnreadable, SealError."""
        return self.decode_text(record, codec, self.open(record))

    def decode_text(self, record: StepRecord, codec: TypeCodec, text: str) -> Any:
        """Return a part of one, upgraded where the type asks for that. Raises: StepUnreadable."""
        try:
            return codec.decode(text)
        except OutputInvalid as error:
            upgrade = self._attempt.type.step_upgrades.get(record.name)
            if upgrade is None and self._attempt.sealed:
                raise self.stop(f"the sealed result of {record.id} is no {codec.name}") from None
            if upgrade is None:
                raise self.stop(_misfit(record, text, error)) from error
        try:
            return codec.decode(upgrade_result(text, upgrade))
        except (OutputInvalid, InputUnreadable) as error:
            raise self.stop(f"the upgraded result of {record.id}: {error.message}") from error

    def describe(self, error: BaseException) -> str:
        """Return an error as it is recorded."""
        kind = type(error).__name__
        message = error.message if isinstance(error, HoldfastError) else words_of(error)
        return clean_error(kind, SEALED_TEXT if self._attempt.sealed else message)

    def stop(self, message: str) -> StepUnreadable:
        """Have the function stop, whatever its code makes of the error that this returns."""
        self.stopped = stopped = StepUnreadable(message, job_id=self._attempt.claimed.id)
        return stopped

    def check_room(self) -> None:
        """Raises: TooManySteps."""
        if len(self.records) >= MAX_STEPS:
            raise TooManySteps(f"the job has {MAX_STEPS} records, the maximum")
        if self._bytes > MAX_RECORDED_BYTES:
            raise TooManySteps(
                f"the job's records have {self._bytes} bytes, the maximum is {MAX_RECORDED_BYTES}"
            )


def _misfit(record: StepRecord, text: str, error: OutputInvalid) -> str:
    if record.kind != "wait":
        return f"the result of {record.id}: {error.message}"
    key = f" for key {record.signal_key}" if record.signal_key else ""
    return (
        f"signal {record.signal}{key} brought {_SHAPES.get(text[:1], 'a number')}: {error.message}"
    )


def _is_asked_for(record: StepRecord) -> bool:
    """Whether the code asks for a record itself."""
    return record.kind in ("step", "sleep", "wait", "run") and not is_retry(record)
