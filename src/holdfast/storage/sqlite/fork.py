"""Forks: every database lets go of its file before, so that parent and child each open it anew."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that must not have the file open while the process forks."""

    def before_fork(self) -> None:
        """Let go of the file and do nothing until told to."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Begin anew."""


_alive: WeakSet[Forkable] = WeakSet()
_frozen: list[Forkable] = []


def watch_forks(each: Forkable) -> None:
    """Tell a database of every fork for as long as it is in use."""
    _alive.add(each)


def _before() -> None:
    _frozen.extend(_alive)
    for each in _frozen:
        each.before_fork()


def _after_in_parent() -> None:
    while _frozen:
        _frozen.pop().after_fork_in_parent()


def _after_in_child() -> None:
    while _frozen:
        _frozen.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
