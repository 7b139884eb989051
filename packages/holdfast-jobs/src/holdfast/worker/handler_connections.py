"""Keeps a worker from claiming jobs whose handlers would get no connection, where the server has none to spare."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.core.errors import NO_ROOM_SQLSTATE, NO_ROOM_WORDS, NoConnection
from holdfast.core.registry import JobType
from holdfast.storage.database import Database
from holdfast.worker.clock import Clock
from holdfast.worker.held_leases import HeldLeases

if TYPE_CHECKING:
    from holdfast.worker.worker_context import Emitter

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 10.0
"""Between two questions for another connection, and of a rest."""

REST_AFTER = 3
"""After so many refusals in a row, a worker that has no connection for handlers lets go of all others."""


class HandlerConnections:
    """Which types need a connection for each call, and how many of their jobs may be claimed.

    Atomic types do. Of others it is known once one of their attempts got none. For those that connect by a driver of
    their own nothing can be kept in hand: as many are tried as had one at the last refusal, and one more after each
    second without another.
    """

    def __init__(
        self,
        database: Database,
        types: Mapping[str, JobType],
        held_leases: HeldLeases,
        clock: Clock,
        emitter: Emitter,
    ) -> None:
        self._database = database
        self._types = types
        self._held_leases = held_leases
        self._clock = clock
        self._emitter = emitter
        self._ours = {name for name, each in types.items() if each.atomic}
        self._foreign: dict[str, tuple[int, float]] = {}
        self._refusals = 0
        self._rests = 0
        self._ask_at = 0.0
        self._paused_until = 0.0
        self._wants_rest = False
        self.is_short = False

    def note_error(self, name: str, error: BaseException) -> None:
        """Learn from an attempt that failed whether its type needs a connection."""
        if not lacked_connection(error):
            return
        self.tell(error)
        if any(isinstance(each, NoConnection) for each in causes_of(error)):
            self._ours.add(name)
        else:
            self._foreign[name] = self._count({name}) - 1, self._clock.monotonic()
            self._database.make_room()

    def tell(self, error: BaseException | None = None) -> None:
        """Tell that the server has too few connections, unless that is known. From any thread."""
        if not self.is_short:
            self.is_short = True
            types = sorted(self._ours.union(self._foreign))
            in_hand = self._database.connections_in_hand or 0
            words = "the server has no room for another connection" if error is None else str(error)
            self._emitter.emit("connections_short", in_hand=in_hand, types=types, error=words)

    def room_of(self, name: str) -> float:
        """How many more jobs of a type may be claimed."""
        if self._wants_rest:
            return 0
        if name not in self._ours and name not in self._foreign:
            return math.inf
        in_hand = self._database.connections_in_hand
        if in_hand is None:
            return math.inf
        if name in self._foreign:
            number, refused_at = self._foreign[name]
            number += int(self._clock.monotonic() - refused_at)
            return number - self._count({name})
        return in_hand - self._count(self._ours)

    def next_looks(self, now: float) -> list[float]:
        """When to look again, though nothing happened."""
        return [max(self._ask_at, now + FIRST_PAUSE_S)] if self.is_short else []

    async def look(self, has_due: Callable[[list[str]], Awaitable[bool]]) -> None:
        """Ask for a connection if one is missing for jobs that are due; let go of all where that is hopeless."""
        in_hand = self._database.connections_in_hand
        if in_hand is None:
            self._end()
            return
        self.tell()
        now = self._clock.monotonic()
        if now < self._ask_at and not self._wants_rest:
            return
        self._ask_at = now + self._pause_s(self._refusals)
        if not await has_due(sorted(self._ours)):
            self._wants_rest = False
            self._database.leave_unused()
        elif in_hand > self._count(self._ours):
            self._wants_rest = False
        elif await self._database.reserve_connection():
            self._refusals = self._rests = 0
            self._wants_rest = False
            self._ask_at = 0.0
        else:
            self._refusals += 1
            if self._refusals >= REST_AFTER and not in_hand:
                self.rest()

    def rest(self) -> None:
        """Leave the connections to others for a while, as soon as no job is held."""
        now = self._clock.monotonic()
        if now < self._paused_until:
            return
        self._wants_rest = len(self._held_leases) > 0
        if not self._wants_rest:
            pause = self._pause_s(self._rests)
            self._database.rest(pause)
            self._ask_at = self._paused_until = now + pause
            self._rests, self._refusals = self._rests + 1, 0

    def _end(self) -> None:
        self._refusals = self._rests = 0
        self._wants_rest = False
        if self.is_short:
            self.is_short = False
            self._emitter.emit("connections_enough")

    def _pause_s(self, times: int) -> float:
        longest = min(FIRST_PAUSE_S * 2.0**times, MAX_PAUSE_S)
        return longest * (0.5 + self._clock.random() / 2)

    def _count(self, names: set[str]) -> int:
        """How many jobs of these types are held and may still need a connection."""
        return sum(
            each.type.name in names and each.ended_at is None
            for each in self._held_leases.attempts()
        )


def lacked_connection(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that there was no room for another connection; for any driver."""
    return any(
        isinstance(each, NoConnection)
        or getattr(each, "sqlstate", None) == NO_ROOM_SQLSTATE
        or (type(each).__name__ == "OperationalError" and _says_no_room(str(each)))
        for each in causes_of(error)
    )


def _says_no_room(text: str) -> bool:
    return any(words in text for words in NO_ROOM_WORDS)


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__
