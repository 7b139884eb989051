"""Drives the plans of one durable function, on the loop or in its handler's thread, until it has to be parked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from holdfast.core.errors import Aborted, StepsRefused
from holdfast.core.instants import Instant
from holdfast.core.steps import ClosedStep, NewStep, StepId
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
from holdfast.steps.current import in_step, running_step
from holdfast.steps.parking import Parked, Parking
from holdfast.steps.step_history import FAILURE, StepHistory
from holdfast.worker.attempt import Attempt

if TYPE_CHECKING:
    from holdfast.steps.functions import Functions


class StepDriver:
    """Does what plans yield, and sends them what came of it."""

    def __init__(self, functions: Functions, attempt: Attempt, history: StepHistory) -> None:
        self._functions = functions
        self._attempt = attempt
        self._history = history
        self._waits: dict[StepId, Instant | None] = {}
        self._futures: set[asyncio.Future[Any]] = set()
        self._running = 0
        self._quiet: asyncio.Future[None] | None = None
        self._goes_back = False
        self.is_used = history.is_replay
        """Whether the handler is a durable function in this attempt."""
        self._is_async = attempt.type.executor == "loop"
        self.parking = Parking(self._is_idle, history.is_behind, attempt)
        self.is_dry = False
        """Whether the function is only replayed, and stops at the first thing that it would do."""

    @property
    def wakes_at(self) -> Instant | None:
        """When the first of its waits is over; None when only a signal or the end of a chain wakes it."""
        return min((each for each in self._waits.values() if each is not None), default=None)

    def find_ignored(self) -> list[int]:
        """The positions of open records for which the function, which parks, does not wait."""
        return [
            each.position
            for each in self._history.records.values()
            if each.state == "open" and each.kind in ("wait", "run") and each.id not in self._waits
        ]

    def call(self, plan: StepPlan) -> Any:
        """Run what the handler calls, if it may go on."""
        self.is_used = True
        return self._call_async(plan) if self._is_async else self._call_sync(plan)

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
        if self._history.stopped is not None:
            raise self._history.stopped
        inside = running_step.get()
        if inside is not None:
            raise StepsRefused(
                f"step {inside.id.partition('/')[2]} calls another one",
                help="call it from the handler, with what the first one returned",
            )

    def go_back(self, plan: StepPlan) -> Any:
        """Run a plan that undoes, as the handler is run, which has ended."""
        self._goes_back = True
        self.parking.leave()
        self._waits.clear()
        return self._drive_async(plan) if self._is_async else self._drive_sync(plan)

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
                with in_step(action.info):
                    if action.timeout_s is None:
                        return await action.function(*action.arguments)
                    async with asyncio.timeout(action.timeout_s):
                        return await action.function(*action.arguments)
            if isinstance(action, WriteRecords):
                return await self.write_rows(action.rows)
            if isinstance(action, CallAtomic):
                return await self._functions.call_atomic(self._history, self._attempt, action)
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
        return self._goes_back or not self._history.is_failed

    async def _act_on_loop(self, action: WriteRecords | StartChildren | DeclareUndo) -> Any:
        if isinstance(action, DeclareUndo):
            return await self._functions.declare_undo(action.type)
        if isinstance(action, WriteRecords):
            return await self.write_rows(action.rows)
        return await self._functions.start_children(self._history, self._attempt, action)

    async def write_rows(self, rows: Sequence[NewStep | ClosedStep]) -> None:
        """Write records. A caller that is cancelled meanwhile hears of it after the commit, unless the attempt ends."""
        stored, payloads = list(rows), self._attempt.type.payloads
        if payloads is not None:
            await payloads.keep(stored)
        recorder = self._functions.recorder
        pending = recorder.write(self._attempt, stored)
        try:
            await recorder.wait(pending)
        except asyncio.CancelledError:
            if self._attempt.abort_reason is None:
                await recorder.wait(pending)
                if not isinstance(pending.answer, Exception):
                    self._history.remember(rows, pending.written())
            raise
        self._history.remember(rows, pending.written())

    async def _park(self, action: Action) -> Any:
        id = action.id if isinstance(action, ParkUntil) else FAILURE
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
            self.parking.begin(Parked)
            raise Parked
        if isinstance(action, CallFunction):
            with in_step(action.info):
                return action.function(*action.arguments)
        if isinstance(action, CallAtomic):
            return self._functions.call_atomic_sync(self._history, self._attempt, action)
        return self._functions.on_loop(self._act_on_loop(action))

    async def until_quiet(self) -> None:
        """Wait until the steps have ended that its handler left running; what is done is recorded first."""
        while self._running:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    def close(self) -> None:
        """End what its handler left behind: nothing is begun any more, and nothing waits."""
        self.parking.close()
        for each in self._futures:
            each.cancel()
