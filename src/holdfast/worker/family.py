"""The processes that a process has started, wherever they went: sessions of their own, and orphans, included."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Stay the ancestor of everything this process starts, also of what its children leave behind. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """The processes below one, the nearest first; none where the system does not tell."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name before it may contain anything, a parenthesis too.
            after_name = each.read_text().rpartition(")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(each.parent.name))
    found: list[int] = []
    below = children.get(pid, [])
    while below:
        found += below
        below = [one for each in below for one in children.get(each, [])]
    return found
