"""How far the chains of a group are, and the end of those that have not ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.change import Change
from holdfast.commands.jobs import cancel_jobs
from holdfast.core.errors import ChainNotFound
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import State
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.params import fetch, fetch_column, texts

CANCEL_AT_ONCE = 1_000
MAX_COUNTED = 10_000
"""Where counts of a list stop."""
LOOK = 1_000
"""A list looks at so many jobs that wait for others; most of them may be no groups."""
LATEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"

CONFINED = (
    *("group.list", "group.cancel"),
    ("group_list", {"instead": "group_list_context"}),
    ("group_progress", {"instead": "group_progress_context"}),
    ("group_open_jobs", {"id": "job", "columns": (0,)}),
)
"""What principals that are confined to one context may do, and how each statement is cut."""


class GroupProgress(msgspec.Struct, frozen=True):
    """How many chains of a group there are in all, wait, run, and have ended, by how they ended."""

    total: int
    waiting: int
    running: int
    completed: int
    failed: int
    cancelled: int

    @property
    def ended(self) -> int:
        """How many have ended; chains that retention has removed count among the completed."""
        return self.completed + self.failed + self.cancelled

    @property
    def fraction(self) -> float:
        """How much of the group has ended, from 0 to 1."""
        return self.ended / self.total if self.total else 1.0


class GroupSummary(msgspec.Struct, frozen=True):
    """A group in a list: the job that follows it, and how many of its chains have ended, counted up to MAX_COUNTED."""

    id: str
    type: str
    state: State
    total: int
    ended: int
    created_at: Instant

    @property
    def is_counted(self) -> bool:
        """Whether all of its chains were counted."""
        return self.total < MAX_COUNTED


def read_groups(limit: int, before: str | None = None) -> Op[list[GroupSummary]]:
    """Read the newest groups, or those before one of them. One statement."""
    return fetch(
        GroupSummary,
        "group_list",
        before=before or LATEST,
        look=LOOK,
        limit=limit,
        max_count=MAX_COUNTED,
    )


def read_progress(store: Store, group: str) -> Op[GroupProgress]:
    """Count the chains that a group's last job waits for, or waited for. One statement. Raises: ChainNotFound."""
    (found,) = yield from fetch(GroupProgress, "group_progress", job=group)
    if not found.total and not (yield from store.jobs.get([group])):
        raise ChainNotFound(f"there is no group {group}")
    return found


def read_progress_of(chains: Sequence[str]) -> Op[GroupProgress]:
    """Count any chains by their states. One statement."""
    (found,) = yield from fetch(GroupProgress, "group_progress_of", chains=texts(chains))
    return found


def cancel_group(store: Store, group: str, reason: str = "") -> Op[Change[int]]:
    """Cancel the job that follows a group, and every chain of it that has not ended; return how many chains that were.

    Raises: ChainNotFound.
    """
    yield from read_progress(store, group)
    first: Change[list[str]] | None = None
    changes: list[Change[list[str]]] = []
    if (yield from store.jobs.lock([group])):
        # Before the others, so that their ends do not open it.
        first = yield from cancel_jobs(store, [group], reason)
    jobs = yield from fetch_column("group_open_jobs", job=group)
    for begin in range(0, len(jobs), CANCEL_AT_ONCE):
        page = jobs[begin : begin + CANCEL_AT_ONCE]
        # One that ended or continued since it was read is left to the next call.
        if (yield from store.jobs.lock(page)):
            changes.append((yield from cancel_jobs(store, page, reason)))
    every = [*([first] if first else []), *changes]
    return Change(
        sum(len(each.answer) for each in changes),
        [effect for each in every for effect in each.effects],
        [hint for each in every for hint in each.hints],
        [event for each in every for event in each.events],
        every[0].witness if every else None,
    )
