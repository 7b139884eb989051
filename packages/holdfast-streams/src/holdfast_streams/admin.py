"""Streams for HTTP, pages and the command line: readers, their lag, and what operators do with them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from holdfast.admin.access import Caller
from holdfast.admin.serializers import plain
from holdfast.commands.change import Change
from holdfast.core.instants import Instant
from holdfast.storage.operation import Op
from holdfast_streams.commands import (
    StreamFacts,
    find_reader,
    line_json,
    pause_reader,
    read_lines,
    rebase_relay,
    recreate_stream,
    remove_reader,
    retry_parked,
    rewind_reader,
    skip_parked,
    stream_facts,
)
from holdfast_streams.parked_admin import ParkedAdmin
from holdfast_streams.reader_store import (
    READERS,
    ParkedEvent,
    ParkedState,
    ReaderRecord,
    resolve_since,
)


def stream_json(facts: StreamFacts) -> dict[str, Any]:
    """Return a reader for programs."""
    return {
        **plain(facts.reader),
        "state": facts.state,
        "lag": facts.lag,
        "lag_ms": facts.lag_ms,
        "parked": facts.parked_count,
        "lines": [line_json(each, facts.now) for each in facts.lines],
        "waits": [str(each) for each in (*facts.waits, *facts.blocks)],
        "health": facts.sentence,
        "is_ahead": any(each.state == "ahead" for each in facts.blocks),
        "is_unfit": any(each.state == "unfit" for each in facts.blocks),
    }


class StreamAdmin(ParkedAdmin):
    """What can be asked about readers of the log and done with them."""

    noun, command = "stream", "streams"

    def find_op(self, name: str) -> Op[ReaderRecord]:
        return find_reader(name)

    def parked_op(self, name: str, state: ParkedState | None, limit: int) -> Op[list[ParkedEvent]]:
        return READERS.parked_events(name, state, limit)

    def retry_op(self, name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
        return retry_parked(name, ids)

    def skip_op(self, name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
        return skip_parked(name, ids)

    async def list(self, caller: Caller) -> list[StreamFacts]:
        """Read every reader."""
        return await self._gateway.read(caller, "stream.list", lambda store: stream_facts())

    async def get(self, caller: Caller, name: str) -> StreamFacts:
        """Read one. Raises: ReaderNotFound."""
        for each in await self.list(caller):
            if each.reader.name == name:
                return each
        await self.find(caller, name)
        # It has come meanwhile.
        return await self.get(caller, name)

    async def find_line(self, caller: Caller, name: str, line: int | None) -> None:
        """See that a reader has a line, if one is named. Raises: ReaderNotFound, LineNotFound."""
        await self._gateway.read(caller, "stream.list", lambda store: read_lines(name, line))

    async def pause(self, caller: Caller, name: str) -> None:
        """Pause a reader. Raises: ReaderNotFound."""
        await self._gateway.run(caller, "stream.pause", lambda store: pause_reader(name, True))

    async def resume(self, caller: Caller, name: str) -> None:
        """Resume a reader where it was. Raises: ReaderNotFound."""
        await self._gateway.run(caller, "stream.resume", lambda store: pause_reader(name, False))

    async def rewind(
        self,
        caller: Caller,
        name: str,
        since: Instant | None,
        ago_ms: int | None = None,
        line: int | None = None,
    ) -> builtins.list[tuple[int, int]]:
        """Set a reader to an instant, or so long before now; None is the end. Raises: ReaderNotFound."""
        if ago_ms is not None:
            since = await self._gateway.read_unchecked(lambda store: resolve_since(ago_ms, None))
        return await self._gateway.run(
            caller, "stream.rewind", lambda store: rewind_reader(name, since, line)
        )

    async def rebase(self, caller: Caller, name: str) -> builtins.list[int]:
        """Have a relay go on whose stream has events that this database does not. Raises: as `rebase_relay`."""
        return await self._gateway.run(caller, "stream.rebase", lambda store: rebase_relay(name))

    async def recreate(self, caller: Caller, name: str) -> builtins.list[int]:
        """Have a relay create its stream that is gone. Raises: as `recreate_stream`."""
        return await self._gateway.run(
            caller, "stream.recreate", lambda store: recreate_stream(name)
        )

    async def remove(self, caller: Caller, name: str) -> None:
        """Forget a reader. Raises: ReaderNotFound, ReaderIsRun."""
        await self._gateway.run(caller, "stream.remove", lambda store: remove_reader(name))
