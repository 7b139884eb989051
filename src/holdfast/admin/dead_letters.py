"""Dead letters: by their kind, redriven at a rate, or dropped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.jobs import MOST_AT_ONCE, checked_ids
from holdfast.admin.serializers import shown_dead_group
from holdfast.client.pagination import query_of
from holdfast.commands.chains import drop_jobs
from holdfast.commands.change import Change
from holdfast.commands.jobs import redrive_jobs, spacing_us
from holdfast.core.errors import InvalidOption
from holdfast.core.filters import parse_filter
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

LOOK = 1_000
"""Groups are made of this many of the newest dead letters, which a page can wait for at any size."""

LOOK_FAR = 100_000
"""A command scans at most this many for those that match its filter."""

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3_600}


class HandledDeadLetters(msgspec.Struct, frozen=True):
    """What a command did to dead letters; `more` means that more match than one command takes."""

    ids: list[str]
    more: bool


class Groups(msgspec.Struct, frozen=True):
    """Dead letters by their kind; `cut` means that only the newest were scanned."""

    items: list[dict[str, Any]]
    cut: bool


class DeadLetterAdmin:
    """What can be asked about dead letters and done to them. Each command takes ids, or a filter that finds them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def groups(self, caller: Caller, limit: int = 100, look: int = LOOK) -> Groups:
        """Read the largest groups by type and kind of error among the newest."""
        return await self._gateway.read(
            caller, "dead.list", lambda store: dead_groups(store, limit, look)
        )

    async def redrive(
        self,
        caller: Caller,
        ids: Sequence[str] = (),
        filter: str | None = None,
        rate: float | None = None,
        behind: int = 0,
    ) -> HandledDeadLetters:
        """Put dead letters back into the queue, at most `rate` a second.

        Raises: JobNotFound, WrongState when none is one; InvalidOption, FilterError.
        `behind` counts those redriven at the same rate just before; these become due after them.
        """
        spacing = spacing_us(rate)

        def op(store: Store) -> Op[Change[HandledDeadLetters]]:
            wanted, more = yield from _chosen(store, ids, filter)
            first = (yield from store.schema.clock()) + behind * spacing
            if not wanted:
                return Change(HandledDeadLetters([], more))
            change = yield from redrive_jobs(store, wanted, spacing, first)
            return change.with_answer(HandledDeadLetters(change.answer, more))

        return await self._gateway.run(caller, "dead.redrive", op)

    async def drop(
        self, caller: Caller, ids: Sequence[str] = (), filter: str | None = None
    ) -> HandledDeadLetters:
        """Delete dead letters with their chains; those that other jobs wait for are left alone.

        Raises: JobNotFound, WrongState, StillReferenced when none could be dropped.
        """

        def op(store: Store) -> Op[Change[HandledDeadLetters]]:
            wanted, more = yield from _chosen(store, ids, filter)
            if not wanted:
                return Change(HandledDeadLetters([], more))
            change = yield from drop_jobs(store, wanted)
            return change.with_answer(HandledDeadLetters(change.answer, more))

        return await self._gateway.run(caller, "dead.drop", op)


def dead_groups(store: Store, limit: int, look: int) -> Op[Groups]:
    """Read groups of dead letters, and whether there are more than were scanned."""
    found = yield from store.dead_letters.groups(limit, look)
    cut = sum(each.count for each in found) >= look
    return Groups([shown_dead_group(each) for each in found], cut)


def per_second(text: str) -> float:
    """Parse a rate such as 50/s or 10/m; a bare number is per second. Raises: InvalidOption."""
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise InvalidOption(
            f"{text[:20]!r} is not a rate like 50/s or 10/m",
            help="give a number per second, minute or hour",
        )
    return float(match[1]) / _SECONDS[match[2] or "s"]


def _chosen(store: Store, ids: Sequence[str], filter: str | None) -> Op[tuple[list[str], bool]]:
    if bool(ids) == (filter is not None):
        raise InvalidOption("give either ids or a filter to choose dead letters")
    if filter is None:
        return checked_ids(ids), False
    is_narrowed = any(term.field == "state" for term in parse_filter(filter))
    text = filter if is_narrowed else f"state:failed {filter}"
    found = yield from store.jobs.walk(query_of(text, MOST_AT_ONCE, None), LOOK_FAR)
    ids = [each.id for each in found.records if each.state == "failed"]
    return ids, found.end is not None
