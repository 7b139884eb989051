"""One attempt of a durable function: replays what was recorded, runs what was not, and records it.

Each call of a handler is a plan, a generator neither sync nor async: it yields what is to be done, and is sent what
came of it. One driver runs plans on the loop, the other in the handler's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from holdfast.commands.signals import check_signal_key, check_signal_name
from holdfast.core.codec import TypeCodec
from holdfast.core.duration import MAX_DURATION_MS, Duration, milliseconds
from holdfast.core.errors import (
    Aborted,
    Busy,
    ChildFailed,
    HoldfastError,
    InputUnreadable,
    InvalidOption,
    LeaseLost,
    OutputInvalid,
    PayloadError,
    SealError,
    SignalTimeout,
    StepFailed,
    StepsRefused,
    StepUnreadable,
    TooManySteps,
    words_of,
)
from holdfast.core.instants import Instant
from holdfast.core.outcome import Snooze
from holdfast.core.records import BlockerRecord
from holdfast.core.redaction import clean_error
from holdfast.core.registry import Target
from holdfast.core.retry import Retry
from holdfast.core.sealing import SEALED_TEXT, is_sealed, open_output, seal_output
from holdfast.core.signatures import check_kind, is_async, name_of
from holdfast.core.steps import (
    MAX_RECORDED_BYTES,
    MAX_STEPS,
    RETRY,
    UNDO,
    UNUSED,
    ClosedStep,
    NewStep,
    RecordedBefore,
    StepId,
    StepKind,
    StepRecord,
    StepState,
    Written,
    is_retry,
)
from holdfast.core.upgrades import upgrade_result
from holdfast.steps.actions import (
    Action,
    CallAtomic,
    CallFunction,
    DeclareUndo,
    ParkUntil,
    StartChildren,
    StepPlan,
    WriteRecords,
)
from holdfast.steps.current import StepInfo, in_step, running_step
from holdfast.steps.cursor import Cursor
from holdfast.steps.parking import Killed, Parked, Parking
from holdfast.steps.result_types import ANYTHING, codec_of, result_codec
from holdfast.steps.step_names import StepNames, hash_arguments
from holdfast.worker.attempt import Attempt

if TYPE_CHECKING:
    from holdfast.steps.functions import Functions


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


class DurableFunction:
    """One attempt of a function, from its first durable call."""

    def __init__(
        self,
        functions: Functions,
        attempt: Attempt,
        records: Iterable[StepRecord] = (),
        children: Iterable[BlockerRecord] = (),
    ) -> None:
        """`records` are what earlier attempts left, `children` how the chains fare that it called."""
        self._functions = functions
        self._attempt = attempt
        self._records = {each.id: each for each in records}
        self._children = {each.chain_id: each for each in children}
        self._names = StepNames()
        self._unasked = {each.id: each for each in self._records.values() if _is_asked_for(each)}
        self._lazy: list[NewStep | ClosedStep] = []
        self._waits: dict[StepId, Instant | None] = {}
        self._cursors: list[Cursor] = []
        self._undos: dict[StepId, tuple[Callable[..., Any], Any, StepOptions]] = {}
        self._goes_back = False
        self._futures: set[asyncio.Future[Any]] = set()
        self._running = 0
        self._quiet: asyncio.Future[None] | None = None
        self._position = max((each.position for each in self._records.values()), default=0)
        self._bytes = sum(len(each.output or "") for each in self._records.values())
        self._has_marked = bool(attempt.claimed.steps) and attempt.claimed.attempt <= 1
        self.recorded = 0
        self.signals_taken = 0
        self.failures: list[tuple[StepId, str | None]] = []
        self.is_async = attempt.type.executor == "loop"
        self.is_dry = False
        """Whether it is only replayed, and stops at the first thing that it would do."""
        self.parking = Parking(self._is_idle, self._is_behind, attempt)
        self.stopped: StepUnreadable | SealError | None = None
        """Why the code does not fit what was recorded; set even if the handler swallows it."""
        self.is_used = bool(self._records)
        """Whether the handler is a durable function in this attempt."""
        self.is_killed = False

    # ---- How it stands, for the worker

    @property
    def is_parking(self) -> bool:
        """Whether the attempt ends because the function waits."""
        return self.parking.has_begun

    @property
    def is_undoing(self) -> bool:
        """Whether the function has failed before, and is replayed to be undone."""
        return bool(self._attempt.claimed.failing) or _FAILURE in self._records

    @property
    def wakes_at(self) -> Instant | None:
        """When the first of its waits is over; None when only a signal or the end of a chain wakes it."""
        return min((each for each in self._waits.values() if each is not None), default=None)

    @property
    def has_undos(self) -> bool:
        """Whether a recorded step is to be undone if the function fails."""
        return any(each.undo and each.state == "done" for each in self._records.values())

    async def record_unused(self) -> list[str]:
        """Record what the code, which has ended, did not ask for; return it. Raises: LeaseLost, Aborted."""
        found = [str(each) for each in self._unasked]
        if found and UNUSED not in self._records:
            names = msgspec.json.encode(found).decode()
            await self._write_rows([self._new(UNUSED, "cursor", "done", output=names)])
        return found

    def find_ignored(self) -> list[int]:
        """The positions of open records for which the function, which parks, does not wait."""
        return [
            each.position
            for each in self._records.values()
            if each.state == "open" and each.kind in ("wait", "run") and each.id not in self._waits
        ]

    def reach(self, moment: str, id: StepId | str = "") -> None:
        """Tell a test how far the attempt has come. Raises: Killed, if its worker is to die there."""
        is_killed = self._functions.on_boundary
        if is_killed is not None and (self.is_killed or is_killed(moment.format(id))):
            self.is_killed = self.parking.has_begun = True
            raise Killed

    async def save(self) -> None:
        """Write what was put off: the attempt ends before the function does. Raises: LeaseLost, Aborted.

        What is still open in the database would make a parked function due at once.
        """
        rows = [row for each in self._cursors if (row := each.take_row()) is not None]
        rows += [each for each in self._lazy if isinstance(each, ClosedStep)]
        self._lazy = []
        if rows:
            await self._write_rows(rows)

    def close(self) -> None:
        """End what its handler left behind: nothing is begun any more, and nothing waits."""
        self.parking.close()
        for each in self._futures:
            each.cancel()

    async def until_quiet(self) -> None:
        """Wait until the steps have ended that its handler left running; what is done is recorded first."""
        while self._running:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    # ---- What a handler calls, as plans

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: StepOptions,
    ) -> StepPlan:
        """Run a step, unless it was recorded."""
        self._check_function(function, options)
        id = self._names.enter(check_signal_name(name), check_signal_key(options.key))
        try:
            # Of what is sealed, a hash would tell that a guess is right.
            hashed = None if self._attempt.sealed else hash_arguments(arguments)
            codec = result_codec(function)
            record = self._find(id, "step")
            if record is None:
                if options.undo is not None:
                    yield DeclareUndo(self._attempt.type.name)
                value = yield from self._run_step(id, function, arguments, options, codec, hashed)
            else:
                value = self._replay(record, codec, hashed, arguments)
            if options.undo is not None:
                self._undos[id] = options.undo, value, options
                self._attempt.has_undos = True
                if self.is_undoing and self._knows_all_undos():
                    # What follows this step may be what the function failed with.
                    yield ParkUntil(id, None)
            return value
        finally:
            self._names.leave(id)

    def _replay(
        self, record: StepRecord, codec: TypeCodec, hashed: int | None, arguments: tuple[Any, ...]
    ) -> Any:
        if None not in (hashed, record.arguments) and hashed != record.arguments:
            raise self._stop(
                f"step {record.id} was recorded with other arguments than {repr(arguments)[:200]}"
                f" (their hashes are {record.arguments} and {hashed})"
            )
        if record.state == "failed":
            kind, _, text = (record.error or "").partition(": ")
            raise StepFailed(str(record.id), kind, text)
        return self._decode(record, codec)

    def _run_step(
        self,
        id: StepId,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: StepOptions,
        codec: TypeCodec,
        hashed: int | None,
    ) -> StepPlan:
        self._check_room()
        retry = options.retry or self._attempt.policy.retry
        timeout_s = None if options.timeout is None else milliseconds(options.timeout) / 1000
        claimed, has_undo = self._attempt.claimed, options.undo is not None

        def record(started: Instant, value: Any) -> NewStep:
            self.reach("before {} was recorded", id)
            text = self._encode(codec, value)
            return self._new(
                *(id, "step", "done"),
                output=text,
                arguments=hashed,
                undo=has_undo,
                started_at=started,
            )

        number = 1
        while True:
            retried = StepId(id.name + RETRY, id.key or f"#{id.nth}", number)
            if retried not in self._records:
                started = self._now()
                info = StepInfo(f"{claimed.id}/{id}", claimed.fence, number)
                call = CallFunction(function, arguments, timeout_s, info)
                error: Exception
                try:
                    if options.atomic:
                        atomic = CallAtomic(call, partial(record, started), options.opens)
                        self._remember([(yield atomic)], {})
                    else:
                        yield from self._write([record(started, (yield call))])
                    return self._decode(self._records[id], codec)
                except RecordedBefore as found:
                    self._records[id] = found.record
                    return self._replay(found.record, codec, hashed, arguments)
                except (Busy, Snooze, Aborted, LeaseLost, PayloadError):
                    raise
                except Exception as raised:
                    error = raised
                text = self._describe(error)
                delay_ms = _delay_of(error, retry, number, self._functions.random())
                if delay_ms is None:
                    values = {"error": text, "arguments": hashed, "started_at": started}
                    yield from self._write([self._new(id, "step", "failed", **values)])
                    # What was taken for a failure may have been a commit whose answer was lost: the record says which.
                    try:
                        return self._replay(self._records[id], codec, hashed, arguments)
                    except StepFailed as failed:
                        raise failed from error
                yield from self._sleep_until(retried, delay_ms, text)
            else:
                yield from self._sleep_until(retried, 0)
            number += 1

    def sleep(self, duration: Duration | datetime, key: Any) -> StepPlan:
        """Sleep until so long after the first time that this is reached."""
        id = self._names.enter("sleep", check_signal_key(key))
        try:
            if isinstance(duration, datetime):
                lasts_ms = self._functions.until_ms(duration, self._now())
            else:
                lasts_ms = milliseconds(duration)
            yield from self._sleep_until(id, lasts_ms)
        finally:
            self._names.leave(id)

    def _sleep_until(self, id: StepId, lasts_ms: int, error: str | None = None) -> StepPlan:
        record = self._find(id, "sleep")
        if record is None:
            self._check_room()
            yield from self._write([self._new(id, "sleep", "open", lasts_ms=lasts_ms, error=error)])
            record = self._records[id]
        if record.state == "open":
            assert record.until is not None
            if record.until > self._now():
                yield ParkUntil(id, record.until)
            # Once passed it stays so, wherever the clock is set: that is written with the next record.
            self._close(record, "done")

    def wait_for(self, signal: str, key: Any, timeout: Duration | None, returns: Any) -> StepPlan:
        """Wait for a signal."""
        name, text = check_signal_name(signal), check_signal_key(key)
        codec = codec_of(returns)
        id = self._names.enter(f"wait:{name}", text, is_repeatable=True)
        try:
            record = self._find(id, "wait")
            if record is None:
                self._check_room()
                lasts_ms = None if timeout is None else milliseconds(timeout)
                new = self._new(id, "wait", "open", lasts_ms=lasts_ms, signal=name, signal_key=text)
                yield from self._write([new])
                record = self._records[id]
            if record.state == "open":
                record = yield from self._end_wait(record)
            if record.state == "timed_out":
                raise SignalTimeout(name, text)
            return self._decode(record, codec)
        finally:
            self._names.leave(id)

    def _end_wait(self, record: StepRecord) -> StepPlan:
        """Take the signal that came, or the timeout; whichever is recorded has won."""
        if record.signal_id is None and record.until is not None and record.until <= self._now():
            yield WriteRecords([self._make_end(record, "timed_out")])
            record = self._records[record.id]
        while record.state == "open" and record.signal_id is not None:
            taken = self._make_end(record, "done", self._seal(record.signal_data or "null"))
            yield WriteRecords([msgspec.structs.replace(taken, signal_id=record.signal_id)])
            # If that one was gone, the record that was read now may have another.
            record = self._records[record.id]
        if record.state == "open":
            yield ParkUntil(record.id, record.until)
        return record

    def run(
        self,
        target: Target,
        inputs: Sequence[Any],
        keys: Sequence[str | None] | None,
        options: dict[str, Any],
        *,
        is_single: bool,
    ) -> StepPlan:
        """Start chains and wait for the end of all."""
        name, codec = self._functions.output_of(target)
        key = keys[0] if is_single and keys else None
        id = self._names.enter(f"run:{name}", check_signal_key(key))
        if not inputs:
            self._names.leave(id)
            return []
        try:
            record = self._find(id, "run")
            if record is None:
                self._check_room()

                def new(ids: str) -> NewStep:
                    self.reach("before {} was recorded", id)
                    return self._new(id, "run", "open", output=ids)

                try:
                    self._remember([(yield StartChildren(target, inputs, keys, options, new))], {})
                except RecordedBefore as found:
                    self._records[id] = found.record
                record = self._records[id]
            if record.state == "open":
                record = yield from self._end_run(record, is_single)
            if record.state == "failed":
                raise ChildFailed(*msgspec.json.decode(record.error or "[]"))
            if is_single:
                return self._decode(record, codec)
            texts = msgspec.json.decode(self._open(record), type=list[msgspec.Raw])
            return [self._decode_text(record, codec, bytes(each).decode()) for each in texts]
        finally:
            self._names.leave(id)

    def _end_run(self, record: StepRecord, is_single: bool) -> StepPlan:
        ids = msgspec.json.decode(record.output or "[]", type=list[str])
        ended = [self._children.get(each) for each in ids]
        if any(each is None or each.open for each in ended):
            yield ParkUntil(record.id, None)
        outputs = []
        for child in ended:
            assert child is not None
            if child.state != "completed":
                error = msgspec.json.encode([child.chain_id, child.state, child.error]).decode()
                self._close(record, "failed", error=error)
                return self._records[record.id]
            outputs.append(self._functions.open_child(child, self._attempt))
        text = outputs[0] if is_single else f"[{','.join(outputs)}]"
        self._close(record, "done", self._seal(text))
        return self._records[record.id]

    def cursor(self, name: str, start: Any) -> StepPlan:
        """Return where a loop is that began at `start`."""
        id = self._names.enter(check_signal_name(name))
        self._names.leave(id)
        codec = ANYTHING if start is None else TypeCodec(type(start), "output")
        record = self._find(id, "cursor")
        if record is None:
            self._check_room()
            new = self._new(id, "cursor", "open", output=self._encode(codec, start))
            yield from self._write([new])
            record = self._records[id]
        position = record

        def make_row(value: Any) -> ClosedStep:
            return self._make_end(position, "open", self._encode(codec, value))

        value, monotonic = self._decode(record, codec), self._functions.monotonic
        cursor = Cursor(value, codec, make_row, self.call, monotonic)
        self._cursors.append(cursor)
        return cursor

    # ---- Undoing

    def undo(self, error: str) -> StepPlan:
        """Undo the recorded steps in reverse order of their ends; return why one could not be undone, or None.

        The error is recorded first: from then on the function only goes backwards, also after a crash.
        """
        if _FAILURE not in self._records:
            yield from self._write([self._new(_FAILURE, "failure", "failed", error=error)])
        steps = sorted(
            (each for each in self._records.values() if each.undo and each.state == "done"),
            key=lambda each: -each.position,
        )
        for done, record in enumerate(steps):
            id = StepId(UNDO + record.name, record.key, record.nth)
            if id not in self._records:
                known = self._undos.get(record.id)
                if known is None:
                    return (
                        f"{done} of {len(steps)} undone; the code has no undo for step {record.id}"
                    )
                function, value, options = known
                info = StepInfo(f"{self._attempt.claimed.id}/{id}", self._attempt.claimed.fence, 1)
                call = CallFunction(function, (value,), None, info)

                def new(_: Any, id: StepId = id) -> NewStep:
                    self.reach("before {} was recorded", id)
                    return self._new(id, "undo", "done")

                try:
                    if options.atomic:
                        row = yield CallAtomic(call, new, options.opens)
                        self._remember([row], {})
                    else:
                        yield call
                        yield from self._write([new(None)])
                except RecordedBefore as found:
                    self._records[id] = found.record
                except (Busy, Snooze, Aborted, LeaseLost):
                    raise
                except Exception as raised:
                    text = self._describe(raised)
                    return f"{done} of {len(steps)} undone; undoing step {record.id} failed: {text}"
        return None

    def _knows_all_undos(self) -> bool:
        return all(
            each.id in self._undos
            for each in self._records.values()
            if each.undo and each.state == "done"
        )

    def failure(self) -> str | None:
        """The error that the function failed with before it was undone."""
        found = self._records.get(_FAILURE)
        return None if found is None else found.error

    def run_undos(self, error: str) -> Any:
        """Run `undo` as the handler is run, which has ended."""
        self._goes_back = True
        self._waits.clear()
        return self._drive(self.undo(error))

    # ---- Records

    def _find(self, id: StepId, kind: StepKind) -> StepRecord | None:
        """Return the record of a call, if there is one. Raises: StepUnreadable when it is of another kind."""
        self._unasked.pop(id, None)
        record = self._records.get(id)
        if record is not None and record.kind != kind:
            raise self._stop(f"{id} was recorded as a {record.kind}, and is a {kind} in this code")
        return record

    def _new(self, id: StepId, kind: StepKind, state: StepState, **values: Any) -> NewStep:
        claimed = self._attempt.claimed
        self._position += 1
        values.setdefault("started_at", self._now())
        proof = (claimed.id, claimed.token, id.name, id.key, id.nth)
        return NewStep(*proof, self._position, kind, state, **values)

    def _make_end(
        self,
        record: StepRecord,
        state: StepState,
        output: str | None = None,
        error: str | None = None,
    ) -> ClosedStep:
        claimed = self._attempt.claimed
        return ClosedStep(
            claimed.id, claimed.token, record.name, record.key, record.nth, state, output, error
        )

    def _close(
        self,
        record: StepRecord,
        state: StepState,
        output: str | None = None,
        error: str | None = None,
    ) -> None:
        """End an open record; that is written with the next one, since a replay would come to the same end."""
        row = self._make_end(record, state, output, error)
        self._lazy.append(row)
        self._remember([row], {})

    def _write(self, rows: Sequence[NewStep]) -> StepPlan:
        """Write records, with what was put off until now."""
        lazy, self._lazy = self._lazy, []
        yield WriteRecords([*lazy, *map(self.mark, rows)])

    def mark(self, row: NewStep) -> NewStep:
        """Have the first record of an attempt noted in the live row; it is that until one was written."""
        return row if self._has_marked else msgspec.structs.replace(row, marks=True)

    def _remember(self, rows: Sequence[NewStep | ClosedStep], written: Written) -> None:
        for row in rows:
            id = StepId(row.name, row.key, row.nth)
            until = written.get(id)
            if isinstance(row, NewStep) and not self._has_marked:
                self._has_marked = True
                self._attempt.claimed.steps = True
                self._attempt.claimed.attempt = 1
            if isinstance(until, StepRecord):
                self._records[id] = until
                continue
            if isinstance(row, ClosedStep):
                known = self._records[id]
                self.signals_taken += row.signal_id is not None
                output = known.output if row.output is None else row.output
                self._records[id] = msgspec.structs.replace(
                    known, state=row.state, output=output, error=row.error
                )
                continue
            self._bytes += len(row.output or "")
            self.recorded += 1
            if row.kind == "step" and row.state == "failed":
                self.failures.append((id, row.error))
            self._records[id] = StepRecord(
                row.job_id,
                row.name,
                row.key,
                row.nth,
                row.position,
                row.kind,
                row.state,
                row.output,
                row.error,
                row.arguments,
                row.undo,
                self._attempt.claimed.fence,
                row.started_at,
                None,
                until,
                row.signal,
                row.signal_key,
            )
            self.reach("after {} was recorded", id)

    def _encode(self, codec: TypeCodec, value: Any) -> str:
        return self._seal(codec.encode(value, self._functions.output_limit))

    def _seal(self, text: str) -> str:
        attempt = self._attempt
        if not attempt.sealed or is_sealed(text):
            return text
        return seal_output(
            attempt.type.sealer, text, attempt.claimed.chain_id, attempt.claimed.type
        )

    def _open(self, record: StepRecord) -> str:
        text, claimed = record.output or "null", self._attempt.claimed
        try:
            return open_output(self._attempt.type.sealer, text, claimed.chain_id)
        except SealError as error:
            error.job_id, self.stopped = claimed.id, error
            raise

    def _decode(self, record: StepRecord, codec: TypeCodec) -> Any:
        return self._decode_text(record, codec, self._open(record))

    def _decode_text(self, record: StepRecord, codec: TypeCodec, text: str) -> Any:
        try:
            return codec.decode(text)
        except OutputInvalid as error:
            upgrade = self._attempt.type.step_upgrades.get(record.name)
            if upgrade is None and self._attempt.sealed:
                raise self._stop(f"the sealed result of {record.id} is no {codec.name}") from None
            if upgrade is None:
                raise self._stop(f"the result of {record.id}: {error.message}") from error
        try:
            return codec.decode(upgrade_result(text, upgrade))
        except (OutputInvalid, InputUnreadable) as error:
            raise self._stop(f"the upgraded result of {record.id}: {error.message}") from error

    def _describe(self, error: BaseException) -> str:
        kind = type(error).__name__
        message = error.message if isinstance(error, HoldfastError) else words_of(error)
        return clean_error(kind, SEALED_TEXT if self._attempt.sealed else message)

    def _stop(self, message: str) -> StepUnreadable:
        self.stopped = stopped = StepUnreadable(message, job_id=self._attempt.claimed.id)
        return stopped

    def _check_room(self) -> None:
        if len(self._records) >= MAX_STEPS:
            raise TooManySteps(f"the job has {MAX_STEPS} records, the maximum")
        if self._bytes > MAX_RECORDED_BYTES:
            raise TooManySteps(
                f"the job's records have {self._bytes} bytes, the maximum is {MAX_RECORDED_BYTES}"
            )

    def _check_function(self, function: Callable[..., Any], options: StepOptions) -> None:
        check_kind("retry", options.retry, (Retry, NoneType))
        if not callable(options.atomic):
            check_kind("atomic", options.atomic, (bool,))
        for each in (function, options.undo):
            if each is not None and not callable(each):
                raise InvalidOption(f"{repr(each)[:60]} is no function", help="pass one, uncalled")
            if each is not None and is_async(each) != self.is_async:
                mine, other = ("async", "sync") if self.is_async else ("sync", "async")
                raise InvalidOption(
                    f"{name_of(each)} is {other}, and the handler is {mine}",
                    help="in an async handler, call a sync function with asyncio.to_thread in an async one"
                    if self.is_async
                    else "make the handler async, or the function sync",
                )
        if options.timeout is not None and not self.is_async:
            raise InvalidOption(
                "timeout= works in async handlers only, because a thread cannot be stopped",
                help="let the function's own calls time out",
            )

    def _now(self) -> Instant:
        """The database's clock, as far as it has come since the claim."""
        return self._functions.now(self._attempt)

    # ---- Drivers

    def call(self, plan: StepPlan) -> Any:
        """Run what the handler calls, if it may go on."""
        self.is_used = True
        return self._call_async(plan) if self.is_async else self._call_sync(plan)

    async def _call_async(self, plan: StepPlan) -> Any:
        if self.parking.has_begun or self.parking.is_over:
            await self.parking.refuse_call()
        self._check_call()
        return await self._drive_async(plan)

    def _call_sync(self, plan: StepPlan) -> Any:
        if self.parking.has_begun:
            self.parking.refuse_sync_call(self._attempt.flag)
        self._check_call()
        return self._drive_sync(plan)

    def _check_call(self) -> None:
        """Raises: Aborted, StepUnreadable, SealError, StepsRefused."""
        if self._attempt.abort_reason is not None:
            raise Aborted(self._attempt.abort_reason)
        if self.stopped is not None:
            raise self.stopped
        inside = running_step.get()
        if inside is not None:
            raise StepsRefused(
                f"step {inside.id.partition('/')[2]} calls another one",
                help="call it from the handler, with what the first one returned",
            )

    def _drive(self, plan: StepPlan) -> Any:
        return self._drive_async(plan) if self.is_async else self._drive_sync(plan)

    async def _drive_async(self, plan: StepPlan) -> Any:
        try:
            action = next(plan)
            while True:
                try:
                    answer = await self._act(action)
                except BaseException as error:
                    action = plan.throw(error)
                else:
                    action = plan.send(answer)
        except StopIteration as end:
            return end.value

    async def _act(self, action: Action) -> Any:
        if not self._goes_on(action):
            return await self._park(action)
        self._running += 1
        try:
            if isinstance(action, CallFunction):
                return await _call(action)
            if isinstance(action, WriteRecords):
                return await self._write_rows(action.rows)
            if isinstance(action, CallAtomic):
                return await self._functions.call_atomic(self, self._attempt, action)
            return await self._act_on_loop(action)
        finally:
            self._running -= 1
            if self._quiet is not None and not self._running and not self._quiet.done():
                self._quiet.set_result(None)
            if self._waits:
                self.parking.consider()

    def _goes_on(
        self, action: Action
    ) -> TypeGuard[CallFunction | CallAtomic | WriteRecords | StartChildren | DeclareUndo]:
        """Whether an action is done: the function does not wait, and is not only replayed."""
        if isinstance(action, ParkUntil) or self.is_dry:
            return False
        return self._goes_back or not self.is_undoing

    async def _act_on_loop(self, action: WriteRecords | StartChildren | DeclareUndo) -> Any:
        if isinstance(action, DeclareUndo):
            return await self._functions.declare_undo(action.type)
        if isinstance(action, WriteRecords):
            return await self._write_rows(action.rows)
        return await self._functions.start_children(self, self._attempt, action)

    async def _write_rows(self, rows: Sequence[NewStep | ClosedStep]) -> None:
        """Write records. A caller that is cancelled meanwhile hears of it after the commit, unless the attempt ends."""
        stored, payloads = list(rows), self._attempt.type.payloads
        if payloads is not None:
            await payloads.keep(stored)
        written = self._functions.recorder.write(self._attempt, stored)
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            if self._attempt.abort_reason is None:
                await asyncio.wait({written})
                if written.exception() is None:
                    self._remember(rows, written.result())
            raise
        self._remember(rows, written.result())

    async def _park(self, action: Action) -> Any:
        id = action.id if isinstance(action, ParkUntil) else _FAILURE
        self._waits[id] = action.until if isinstance(action, ParkUntil) else None
        self.parking.consider()
        never = asyncio.get_running_loop().create_future()
        self._futures.add(never)
        try:
            await never
        finally:
            self._futures.discard(never)
            if not self.parking.has_begun:
                del self._waits[id]

    def _is_idle(self) -> bool:
        return bool(self._waits) and self._running == 0

    def _is_behind(self) -> bool:
        """Whether an earlier attempt came to wait where this one has not come yet."""
        return any(each.state == "open" for each in self._unasked.values())

    def _drive_sync(self, plan: StepPlan) -> Any:
        try:
            action = next(plan)
            while True:
                try:
                    answer = self._act_sync(action)
                except BaseException as error:
                    action = plan.throw(error)
                else:
                    action = plan.send(answer)
        except StopIteration as end:
            return end.value

    def _act_sync(self, action: Action) -> Any:
        if not self._goes_on(action):
            if isinstance(action, ParkUntil):
                self._waits[action.id] = action.until
            self.parking.has_begun = True
            raise Parked
        if isinstance(action, CallFunction):
            with in_step(action.info):
                return action.function(*action.arguments)
        if isinstance(action, CallAtomic):
            return self._functions.call_atomic_sync(self, self._attempt, action)
        return self._functions.on_loop(self._act_on_loop(action))


def _is_asked_for(record: StepRecord) -> bool:
    """Whether the code asks for a record itself."""
    return record.kind in ("step", "sleep", "wait", "run") and not is_retry(record)


_FAILURE = StepId("failure")
"""As with `UNUSED`, no step of a handler has this id."""


async def _call(call: CallFunction) -> Any:
    with in_step(call.info):
        if call.timeout_s is None:
            return await call.function(*call.arguments)
        async with asyncio.timeout(call.timeout_s):
            return await call.function(*call.arguments)


def _delay_of(error: Exception, retry: Retry, number: int, random: float) -> int | None:
    """How long to wait before a step is tried again; None when it failed for good."""
    try:
        is_final = getattr(error, "retryable", True) is False
        asked = getattr(error, "retry_after_ms", None)
    except Exception:
        # They may be code of the error's own.
        is_final, asked = False, None
    if is_final or (retry.max_attempts is not None and number >= retry.max_attempts):
        return None
    if type(asked) is int and 0 <= asked <= MAX_DURATION_MS:
        return asked
    return retry.delay_ms(number, random)
