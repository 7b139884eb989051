"""Hooks of a transaction follow its savepoints, whatever words they are opened and undone with."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast.storage.hooks import Hooks


class Ran(list[str]):
    def hook(self, name: str) -> Hook:
        return Hook(self, name)


class Hook:
    def __init__(self, ran: Ran, name: str) -> None:
        self._ran, self._name = ran, name

    def __call__(self) -> None:
        self._ran.append(self._name)


@pytest.mark.parametrize(
    ("opening", "undoing"),
    [
        ("savepoint a", "rollback to a"),
        ("SAVEPOINT a;", "ROLLBACK TO SAVEPOINT a"),
        ("savepoint A", "rollback work to savepoint a"),
        ('savepoint "my ""own"""', 'rollback transaction to "my ""own"""'),
        ("  -- why\n /* how */ savepoint a", "select 1; rollback to a;"),
    ],
)
def test_a_rollback_to_a_savepoint_forgets_what_came_since(opening: str, undoing: str) -> None:
    hooks, ran = Hooks(), Ran()
    hooks.add(ran.hook("before"))
    hooks.heed(opening)
    hooks.add(ran.hook("within"))
    hooks.heed(undoing)
    hooks.add(ran.hook("after"))
    hooks.run()
    assert ran == ["before", "after"]


@pytest.mark.parametrize(
    "words",
    ["select 'savepoint a; rollback to a'", "rollback prepared 'a'", "release savepoint a"],
)
def test_other_words_forget_nothing(words: str) -> None:
    hooks, ran = Hooks(), Ran()
    hooks.add(ran.hook("before"))
    hooks.heed("savepoint b")
    hooks.heed(words)
    hooks.add(ran.hook("within"))
    hooks.run()
    assert ran == ["before", "within"]


def test_the_innermost_savepoint_of_a_name_is_meant_until_it_is_released() -> None:
    hooks, ran = Hooks(), Ran()
    hooks.heed("savepoint a")
    hooks.add(ran.hook("outer"))
    hooks.heed("savepoint a")
    hooks.add(ran.hook("inner"))
    hooks.heed("rollback to a")
    hooks.add(ran.hook("again"))
    hooks.heed("release a")
    hooks.add(ran.hook("last"))
    hooks.heed("savepoint b; rollback to a")
    hooks.run()
    assert ran == []


def test_a_block_that_fails_or_is_undone_is_forgotten_with_the_savepoints_in_it() -> None:
    hooks, ran = Hooks(), Ran()
    hooks.heed("savepoint a")
    hooks.add(ran.hook("kept"))
    with suppress(KeyError), hooks.part():
        hooks.heed("savepoint a")
        hooks.add(ran.hook("failed"))
        raise KeyError
    with hooks.part(undone=True):
        hooks.add(ran.hook("undone"))
    with hooks.part():
        hooks.add(ran.hook("kept too"))
    hooks.run()
    assert ran == ["kept", "kept too"]
    hooks.heed("rollback to a")
    hooks.run()
    assert ran == ["kept", "kept too"]


def test_equal_hooks_in_a_row_run_once() -> None:
    hooks, ran = Hooks(), Ran()
    once = ran.hook("once")
    hooks.add(once)
    hooks.add(once)
    hooks.run()
    assert ran == ["once"]
