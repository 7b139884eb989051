"""One attempt of a durable function: replays what was recorded, runs what was not, and records it.

Each call of a handler is a plan, a generator neither sync nor async: it yields what is to be done, and is sent what
came of it. One driver runs plans on the loop, the other in the handler's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.commands.signals import check_signal_key, check_signal_name
from holdfast.core.codec import TypeCodec
from holdfast.core.duration import MAX_DURATION_MS, Duration, milliseconds
from holdfast.core.errors import (
    Aborted,
    Busy,
    ChildFailed,
    InvalidOption,
    LeaseLost,
    PayloadError,
    SignalTimeout,
    StepFailed,
)
from holdfast.core.instants import Instant, to_instant
from holdfast.core.outcome import Snooze
from holdfast.core.records import BlockerRecord
from holdfast.core.registry import Target
from holdfast.core.retry import Retry
from holdfast.core.signatures import check_kind, is_async, name_of
from holdfast.core.steps import (
    RETRY,
    UNUSED,
    ClosedStep,
    NewStep,
    RecordedBefore,
    StepId,
    StepRecord,
)
from holdfast.steps.actions import (
    CallAtomic,
    CallFunction,
    DeclareUndo,
    ParkUntil,
    StartChildren,
    StepOptions,
    StepPlan,
    WriteRecords,
)
from holdfast.steps.current import StepInfo
from holdfast.steps.cursor import Cursor
from holdfast.steps.parking import Killed
from holdfast.steps.result_types import ANYTHING, codec_of, result_codec
from holdfast.steps.step_driver import StepDriver
from holdfast.steps.step_history import StepHistory
from holdfast.steps.step_names import StepNames, hash_arguments
from holdfast.steps.undos import StepUndos
from holdfast.worker.attempt import Attempt

if TYPE_CHECKING:
    from holdfast.steps.functions import Functions


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
        self._names = StepNames()
        self._cursors: list[Cursor] = []
        self.is_async = attempt.type.executor == "loop"
        self.history = StepHistory(functions, attempt, self.reach, records, children)
        self.driver = StepDriver(functions, attempt, self.history)
        self.call = self.driver.call
        self.parking = self.driver.parking
        self._undos = StepUndos(attempt, self.history, self.reach)
        self.is_killed = False

    # ---- What its worker asks of it

    async def record_unused(self) -> list[str]:
        """Record what the code, which has ended, did not ask for; return it. Raises: LeaseLost, Aborted."""
        found = [str(each) for each in self.history.unasked]
        if found and UNUSED not in self.history.records:
            names = msgspec.json.encode(found).decode()
            await self.driver.write_rows([self.history.new(UNUSED, "cursor", "done", output=names)])
        return found

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
        rows += self.history.take_ends()
        if rows:
            await self.driver.write_rows(rows)

    def run_undos(self, error: str) -> Any:
        """Undo what was done, after the handler has ended; return why a step could not be undone, or None."""
        return self.driver.go_back(self._undos.plan(error))

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
            record = self.history.find(id, "step")
            if record is None:
                if options.undo is not None:
                    yield DeclareUndo(self._attempt.type.name)
                value = yield from self._run_step(id, function, arguments, options, codec, hashed)
            else:
                value = self._replay(record, codec, hashed, arguments)
            if options.undo is not None:
                self._undos.add(id, options.undo, value, options)
                if self.history.is_failed and self._undos.are_all_known():
                    # What follows this step may be what the function failed with.
                    yield ParkUntil(id, None)
            return value
        finally:
            self._names.leave(id)

    def _replay(
        self, record: StepRecord, codec: TypeCodec, hashed: int | None, arguments: tuple[Any, ...]
    ) -> Any:
        if None not in (hashed, record.arguments) and hashed != record.arguments:
            raise self.history.stop(
                f"step {record.id} was recorded with other arguments than {repr(arguments)[:200]},"
                " which the code passes now; of the recorded ones there is only a hash"
            )
        if record.state == "failed":
            kind, _, text = (record.error or "").partition(": ")
            raise StepFailed(str(record.id), kind, text)
        return self.history.decode(record, codec)

    def _run_step(
        self,
        id: StepId,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: StepOptions,
        codec: TypeCodec,
        hashed: int | None,
    ) -> StepPlan:
        self.history.check_room()
        retry = options.retry or self._attempt.policy.retry
        timeout_s = None if options.timeout is None else milliseconds(options.timeout) / 1000
        claimed, has_undo = self._attempt.claimed, options.undo is not None

        def record(started: Instant, value: Any) -> NewStep:
            self.reach("before {} was recorded", id)
            text = self.history.encode(codec, value)
            return self.history.new(
                id, "step", "done", output=text, arguments=hashed, undo=has_undo, started_at=started
            )

        number = 1
        tried = self.history.is_replay
        while tried and (retried := _retry_id(id, number)) in self.history.records:
            yield from self._sleep_until(retried, 0)
            number += 1
        while True:
            started = self._now()
            info = StepInfo(f"{claimed.id}/{id}", claimed.fence, number)
            call = CallFunction(function, arguments, timeout_s, info)
            error: Exception
            try:
                if options.atomic:
                    atomic = CallAtomic(call, partial(record, started), options.opens)
                    self.history.remember([(yield atomic)], {})
                else:
                    yield self.history.write([record(started, (yield call))])
                return self.history.decode(self.history.records[id], codec)
            except RecordedBefore as found:
                self.history.records[id] = found.record
                return self._replay(found.record, codec, hashed, arguments)
            except (Busy, Snooze, Aborted, LeaseLost, PayloadError):
                raise
            except Exception as raised:
                error = raised
            text = self.history.describe(error)
            delay_ms = _delay_of(error, retry, number, self._functions.random())
            if delay_ms is None:
                failure = self.history.new(
                    id, "step", "failed", error=text, arguments=hashed, started_at=started
                )
                yield self.history.write([failure])
                # What was taken for a failure may have been a commit whose answer was lost: the record says which.
                try:
                    return self._replay(self.history.records[id], codec, hashed, arguments)
                except StepFailed as failed:
                    raise failed from error
            yield from self._sleep_until(_retry_id(id, number), delay_ms, text)
            number += 1

    def sleep(self, duration: Duration | datetime, key: Any) -> StepPlan:
        """Sleep until so long after the first time that this is reached."""
        id = self._names.enter("sleep", check_signal_key(key))
        try:
            if isinstance(duration, datetime):
                lasts_ms = self._functions.until_ms(duration, self._now())
                yield from self._sleep_until(id, lasts_ms, planned=to_instant(duration))
            else:
                yield from self._sleep_until(id, milliseconds(duration))
        finally:
            self._names.leave(id)

    def _sleep_until(
        self, id: StepId, lasts_ms: int, error: str | None = None, planned: Instant | None = None
    ) -> StepPlan:
        record = self.history.find(id, "sleep")
        if record is None:
            self.history.check_room()
            new = self.history.new(
                id, "sleep", "open", lasts_ms=lasts_ms, error=error, arguments=planned
            )
            yield self.history.write([new])
            record = self.history.records[id]
        if record.state == "open":
            assert record.until is not None
            if record.until > self._now():
                yield ParkUntil(id, record.until)
            # Once passed it stays so, wherever the clock is set: that is written with the next record.
            self.history.close(self.history.make_end(record, "done"))

    def wait_for(self, signal: str, key: Any, timeout: Duration | None, returns: Any) -> StepPlan:
        """Wait for a signal."""
        name, text = check_signal_name(signal), check_signal_key(key)
        codec = codec_of(returns)
        id = self._names.enter(f"wait:{name}", text, is_repeatable=True)
        try:
            record = self.history.find(id, "wait")
            if record is None:
                self.history.check_room()
                lasts_ms = None if timeout is None else milliseconds(timeout)
                new = self.history.new(
                    id, "wait", "open", lasts_ms=lasts_ms, signal=name, signal_key=text
                )
                yield self.history.write([new])
                record = self.history.records[id]
            if record.state == "open":
                record = yield from self._end_wait(record)
            if record.state == "timed_out":
                raise SignalTimeout(name, text)
            return self.history.decode(record, codec)
        finally:
            self._names.leave(id)

    def _end_wait(self, record: StepRecord) -> StepPlan:
        """Take the signal that came, or the timeout; whichever is recorded has won."""
        if record.signal_id is None and record.until is not None and record.until <= self._now():
            yield WriteRecords([self.history.make_end(record, "timed_out")])
            record = self.history.records[record.id]
        while record.state == "open" and record.signal_id is not None:
            taken = self.history.make_end(
                record, "done", self.history.seal(record.signal_data or "null")
            )
            yield WriteRecords([msgspec.structs.replace(taken, signal_id=record.signal_id)])
            # If that one was gone, the record that was read now may have another.
            record = self.history.records[record.id]
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
            record = self.history.find(id, "run")
            if record is None:
                self.history.check_room()

                def new(ids: str) -> NewStep:
                    self.reach("before {} was recorded", id)
                    return self.history.new(id, "run", "open", output=ids)

                try:
                    self.history.remember(
                        [(yield StartChildren(target, inputs, keys, options, new))], {}
                    )
                except RecordedBefore as found:
                    self.history.records[id] = found.record
                record = self.history.records[id]
            if record.state == "open":
                record = yield from self._end_run(record, is_single)
            if record.state == "failed":
                raise ChildFailed(*msgspec.json.decode(record.error or "[]"))
            if is_single:
                return self.history.decode(record, codec)
            texts = msgspec.json.decode(self.history.open(record), type=list[msgspec.Raw])
            return [self.history.decode_text(record, codec, bytes(each).decode()) for each in texts]
        finally:
            self._names.leave(id)

    def _end_run(self, record: StepRecord, is_single: bool) -> StepPlan:
        ids = msgspec.json.decode(record.output or "[]", type=list[str])
        ended = [self.history.children.get(each) for each in ids]
        if any(each is None or each.open for each in ended):
            yield ParkUntil(record.id, None)
        outputs = []
        for child in ended:
            assert child is not None
            if child.state != "completed":
                error = msgspec.json.encode([child.chain_id, child.state, child.error]).decode()
                self.history.close(self.history.make_end(record, "failed", error=error))
                return self.history.records[record.id]
            outputs.append(self._functions.open_child(child, self._attempt))
        text = outputs[0] if is_single else f"[{','.join(outputs)}]"
        self.history.close(self.history.make_end(record, "done", self.history.seal(text)))
        return self.history.records[record.id]

    def cursor(self, name: str, start: Any) -> StepPlan:
        """Return where a loop is that began at `start`."""
        id = self._names.enter(check_signal_name(name))
        self._names.leave(id)
        codec = ANYTHING if start is None else TypeCodec(type(start), "output")
        record = self.history.find(id, "cursor")
        if record is None:
            self.history.check_room()
            new = self.history.new(id, "cursor", "open", output=self.history.encode(codec, start))
            yield self.history.write([new])
            record = self.history.records[id]
        position = record

        def make_row(value: Any) -> ClosedStep:
            return self.history.make_end(position, "open", self.history.encode(codec, value))

        value, monotonic = self.history.decode(record, codec), self._functions.monotonic
        cursor = Cursor(value, codec, make_row, self.call, monotonic)
        self._cursors.append(cursor)
        return cursor

    def _check_function(self, function: Callable[..., Any], options: StepOptions) -> None:
        if options.retry is not None:
            check_kind("retry", options.retry, (Retry, NoneType))
        if options.atomic is not False and not callable(options.atomic):
            check_kind("atomic", options.atomic, (bool,))
        for each in (function,) if options.undo is None else (function, options.undo):
            if not callable(each):
                raise InvalidOption(f"{repr(each)[:60]} is no function", help="pass one, uncalled")
            if is_async(each) != self.is_async:
                mine, other = ("async", "sync") if self.is_async else ("sync", "async")
                raise InvalidOption(
                    f"{name_of(each)} is {other}, and the handler is {mine}",
                    help="make both async, with asyncio.to_thread(…) for what blocks, or both sync",
                )
        if options.timeout is not None and not self.is_async:
            raise InvalidOption(
                "timeout= works in async handlers only, because a thread cannot be stopped",
                help="let the function's own calls time out",
            )

    def _now(self) -> Instant:
        """The database's clock, as far as it has come since the claim."""
        return self._functions.now(self._attempt)


def _retry_id(id: StepId, number: int) -> StepId:
    return StepId(id.name + RETRY, id.key or f"#{id.nth}", number)


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
