"""`add_output(app)`: handlers emit, and others read and follow what they emitted, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from holdfast.client.start_options import Id, id_text
from holdfast.commands.blockers import no_such_chain
from holdfast.core.codec import decode_any
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption, SealError, WaitTimeout
from holdfast.core.records import State
from holdfast.core.sealing import open_output, sealed_marker
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_output.emission import OutputLimits
from holdfast_output.emission_writer import EmissionWriter
from holdfast_output.errors import OutputPositionInvalid
from holdfast_output.following import Following, NewOutput
from holdfast_output.output_store import READ_ROWS, BatchRecord, read_batches, read_epochs

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_ATTACHED = "output"
_READER = "output.reader"

MAX_ITEMS = 100_000
MAX_BYTES = 16 * 1024 * 1024
FLUSH_MS = 50
MAX_FLUSH_MS = 10_000
MAX_POSITION = 2**63 - 1


Show = Callable[[Any], Any]
"""What is shown of an item's data to those who may not see all of it."""


class OutputItem(msgspec.Struct, frozen=True):
    """One item that a handler emitted.

    `id` grows along the chain: it is what `after` takes. `epoch` counts the attempts of the job `job_id` that emitted:
    where it grows, what this job said before no longer counts.
    """

    id: int
    job_id: UUID
    epoch: int
    data: Any


class OutputEnd(msgspec.Struct, frozen=True):
    """The end of a chain that was followed, and how it ended."""

    state: State


def add_output(
    app: Holdfast,
    *,
    max_items: int = MAX_ITEMS,
    max_bytes: int = MAX_BYTES,
    flush: Duration = FLUSH_MS / 1000,
) -> ChainOutput:
    """Let handlers of an application emit, and return what reads it; called again, return the same.

    An attempt may emit `max_items` items and `max_bytes` bytes; they are written at most every `flush`. Call it before
    workers are made. Raises: InvalidOption.
    """
    found: ChainOutput | None = app.attached.get(_ATTACHED)
    if found is None:
        for name, value in (("max_items", max_items), ("max_bytes", max_bytes)):
            if type(value) is not int or value < 1:
                raise InvalidOption(f"{name}={repr(value)[:40]} is not a number from 1 on")
        flush_ms = milliseconds(flush)
        if not 1 <= flush_ms <= MAX_FLUSH_MS:
            raise InvalidOption(
                f"flush={repr(flush)[:40]} is no interval of writes", help="use 1ms to 10s"
            )
        writer = EmissionWriter(app, flush_ms / 1000, OutputLimits(max_items, max_bytes))
        app.targets.open_emission = writer.open
        found = app.attached[_ATTACHED] = reader_of(app)
    return found


def reader_of(app: Holdfast) -> ChainOutput:
    """Return what reads output, in a process whose own handlers may not emit: a dashboard, a command."""
    found: ChainOutput | None = app.attached.get(_READER)
    if found is None:
        found = app.attached[_READER] = ChainOutput(app)
    return found


def check_position(after: object) -> int:
    """Return a position: the id of an item, or 0. Raises: OutputPositionInvalid."""
    if isinstance(after, str) and after.isascii() and after.isdigit():
        after = int(after[:20])
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after <= MAX_POSITION:
        raise OutputPositionInvalid(f"{repr(after)[:60]} is no position in an output")
    return after


class OutputReader:
    """Turns batches into items, for one reader; what a job said before its newest epoch is left out."""

    def __init__(self, app: Holdfast, chain: Id, after: object, show: Show | None = None) -> None:
        """Raises: InvalidId, OutputPositionInvalid. With `show`, what has no key here is only said to be sealed."""
        self._sealer = app.registry.sealer
        self._show = show
        self._epochs: Mapping[str, int] | None = None
        self.chain = id_text(chain)
        self.after = check_position(after)

    def begin(self) -> Op[None]:
        """Read which epochs count when the reader begins."""
        self._epochs = yield from read_epochs([self.chain])

    def take(self, batches: Sequence[BatchRecord]) -> list[OutputItem]:
        """Return the items of batches that follow what was read. Raises: SealError."""
        items: list[OutputItem] = []
        for batch in batches:
            if batch.epoch >= (self._epochs or {}).get(batch.job_id, 0):
                values = self._values_of(batch)
                job = UUID(batch.job_id)
                items += [
                    OutputItem(number, job, batch.epoch, value)
                    for number, value in enumerate(values, batch.first)
                    if number > self.after
                ]
            self.after = max(self.after, batch.last)
        return items

    def _values_of(self, batch: BatchRecord) -> Sequence[Any]:
        count = batch.last - batch.first + 1
        try:
            values: list[Any] = decode_any(open_output(self._sealer, batch.data, batch.chain_id))
        except SealError:
            if self._show is None:
                raise
            return [sealed_marker(batch.data)] * count
        return values if self._show is None else [self._show(each) for each in values]

    def check(self, store: Store) -> Op[None]:
        """See that there is the chain. Raises: ChainNotFound."""
        if not (yield from store.chains.get([self.chain])):
            raise (yield from no_such_chain(store, self.chain))

    def read_all(self, store: Store) -> Op[list[OutputItem]]:
        """Read all there is. Raises: ChainNotFound."""
        yield from self.check(store)
        yield from self.begin()
        items: list[OutputItem] = []
        while True:
            batches = (yield from read_batches({self.chain: self.after})).get(self.chain, [])
            items += self.take(batches)
            if len(batches) < READ_ROWS:
                return items


class AsyncChainOutput:
    """Async version of `ChainOutput`."""

    def __init__(self, app: Holdfast, following: Following) -> None:
        self._app = app
        self._following = following

    async def read(self, chain: Id, *, after: int = 0) -> list[OutputItem]:
        """See `ChainOutput.read`."""
        database = self._app.database
        return await database.read_async(
            OutputReader(self._app, chain, after).read_all(database.store)
        )

    async def check(self, chain: Id, *, after: object = 0) -> None:
        """See `ChainOutput.check`."""
        database = self._app.database
        await database.read_async(OutputReader(self._app, chain, after).check(database.store))

    async def follow(
        self, chain: Id, *, after: int = 0, timeout: Duration | None = None
    ) -> AsyncGenerator[OutputItem, None]:
        """See `ChainOutput.follow`; leave the loop with `aclosing` around it, or to its end."""
        seconds = None if timeout is None else milliseconds(timeout) / 1000
        async with aclosing(self.follow_batches(chain, after=after, within_s=seconds)) as batches:
            async for some in batches:
                if isinstance(some, OutputEnd):
                    return
                if not some:
                    raise _too_long(chain, timeout)
                for item in some:
                    yield item

    async def follow_batches(
        self,
        chain: Id,
        *,
        after: object = 0,
        within_s: float | None = None,
        show: Show | None = None,
    ) -> AsyncGenerator[Sequence[OutputItem] | OutputEnd, None]:
        """Yield items as they come, several at a time, an empty list when none came for so long, and the end last."""
        reader = OutputReader(self._app, chain, after, show)
        following = self._following
        await self._app.database.read_async(reader.begin())
        following.enter(reader.chain)
        try:
            while True:
                waiter = following.ask(reader.chain, reader.after)
                try:
                    async with asyncio.timeout(within_s):
                        found = await asyncio.wrap_future(waiter)
                except TimeoutError:
                    found = NewOutput(())
                finally:
                    waiter.cancel()
                if found.state is not None:
                    yield OutputEnd(found.state)
                    return
                items = reader.take(found.batches)
                if items or not found.batches:
                    yield items
        finally:
            following.leave(reader.chain)


class ChainOutput:
    """What the handlers of an application's chains emit, for readers in any process. From any thread."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._following = Following(
            lambda: app.database, (lambda: app.notifier) if app.sends_hints else None
        )
        self.aio = AsyncChainOutput(app, self._following)
        """The same, for `await` and `async for`."""

    def read(self, chain: Id, *, after: int = 0) -> list[OutputItem]:
        """Return what a chain has emitted so far, without what failed attempts said before the newest one.

        Raises: ChainNotFound, InvalidId, OutputPositionInvalid, SealError.
        """
        database = self._app.database
        return database.read(OutputReader(self._app, chain, after).read_all(database.store))

    def check(self, chain: Id, *, after: object = 0) -> None:
        """See that a chain can be read from a position on. Raises: ChainNotFound, InvalidId, OutputPositionInvalid."""
        database = self._app.database
        database.read(OutputReader(self._app, chain, after).check(database.store))

    def follow(
        self, chain: Id, *, after: int = 0, timeout: Duration | None = None
    ) -> Iterator[OutputItem]:
        """Yield what a chain has emitted and emits, until the chain ends, however it ends.

        Where an item's `epoch` is greater than that of the items of its `job_id` before, the job was tried again, and
        what it said before no longer counts. `timeout` is how long nothing may come.

        Raises: ChainNotFound, InvalidId, OutputPositionInvalid, SealError, WaitTimeout.
        """
        seconds = None if timeout is None else milliseconds(timeout) / 1000
        for some in self.follow_batches(chain, after=after, within_s=seconds):
            if isinstance(some, OutputEnd):
                return
            if not some:
                raise _too_long(chain, timeout)
            yield from some

    def follow_batches(
        self,
        chain: Id,
        *,
        after: object = 0,
        within_s: float | None = None,
        show: Show | None = None,
    ) -> Iterator[Sequence[OutputItem] | OutputEnd]:
        """Yield items as they come, several at a time, an empty list when none came for so long, and the end last."""
        reader = OutputReader(self._app, chain, after, show)
        following = self._following
        self._app.database.read(reader.begin())
        following.enter(reader.chain)
        try:
            while True:
                waiter = following.ask(reader.chain, reader.after)
                try:
                    found = waiter.result(within_s)
                except TimeoutError:
                    found = NewOutput(())
                finally:
                    waiter.cancel()
                if found.state is not None:
                    yield OutputEnd(found.state)
                    return
                items = reader.take(found.batches)
                if items or not found.batches:
                    yield items
        finally:
            following.leave(reader.chain)


def _too_long(chain: Id, timeout: Duration | None) -> WaitTimeout:
    return WaitTimeout(f"chain {id_text(chain)} has emitted nothing within {timeout}")
