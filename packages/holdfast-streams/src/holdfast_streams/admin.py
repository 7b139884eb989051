"""Streams for HTTP, pages and the command line: readers, their lag, and what operators do with them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, redact_text
from holdfast.core.ids import parse_id
from holdfast.core.instants import Instant
from holdfast_streams.commands import (
    StreamFacts,
    find_reader,
    line_json,
    pause_reader,
    rebase_relay,
    recreate_stream,
    remove_reader,
    retry_parked,
    rewind_reader,
    skip_parked,
    stream_facts,
)
from holdfast_streams.reader_store import (
    READERS,
    ParkedEvent,
    ParkedState,
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


def parked_json(event: ParkedEvent) -> dict[str, Any]:
    """Return a parked event for programs, without its data."""
    return {**plain(event), "error": redact_text(event.error)}


class StreamAdmin(NounAdmin):
    """What can be asked about readers of the log and done with them."""

    async def list(self, caller: Caller) -> list[StreamFacts]:
        """Read every reader."""
        return await self._gateway.read(caller, "stream.list", lambda store: stream_facts())

    async def get(self, caller: Caller, name: str) -> StreamFacts:
        """Read one. Raises: ReaderNotFound."""
        for each in await self.list(caller):
            if each.reader.name == name:
                return each
        await self._gateway.read(caller, "stream.list", lambda store: find_reader(name))
        raise AssertionError("a reader came while it was looked for")

    async def parked_events(
        self, caller: Caller, name: str, state: ParkedState | None = None, limit: int = 50
    ) -> builtins.list[ParkedEvent]:
        """Read the parked events of a reader. Raises: ReaderNotFound."""
        await self._gateway.read(caller, "stream.list", lambda store: find_reader(name))
        return await self._gateway.read(
            caller, "stream.list", lambda store: READERS.parked_events(name, state, limit)
        )

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

    async def retry(self, caller: Caller, name: str, ids: Sequence[str] = ()) -> builtins.list[str]:
        """Have parked events taken again, all or some. Raises: ReaderNotFound, InvalidId."""
        wanted = _ids(ids)
        return await self._gateway.run(
            caller, "stream.retry", lambda store: retry_parked(name, wanted)
        )

    async def skip(self, caller: Caller, name: str, ids: Sequence[str] = ()) -> builtins.list[str]:
        """Give up events that failed, all or some. Raises: ReaderNotFound, InvalidId."""
        wanted = _ids(ids)
        return await self._gateway.run(
            caller, "stream.skip", lambda store: skip_parked(name, wanted)
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


def _ids(ids: Sequence[str]) -> list[str] | None:
    return [str(parse_id(each)) for each in ids] or None
