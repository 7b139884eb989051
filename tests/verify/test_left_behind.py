"""What a test of dying processes leaves behind is checked at its end, in all databases that it had."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Holdfast
from tests.support.laws import STARTED, check_left_behind, is_asked

FOLDERS = Path(__file__).parents[1]


def item_of(path: str = "verify/test_any.py", marks: tuple[str, ...] = (), **funcargs: Any) -> Any:
    """As much of a test as is asked about."""
    return SimpleNamespace(
        path=FOLDERS / path,
        stash=pytest.Stash(),
        funcargs=funcargs,
        get_closest_marker=lambda name: name if name in marks else None,
    )


def lose_a_job(app: Holdfast) -> None:
    with app.transaction() as tx:
        app.start(tx, "any", None)
        tx.execute("delete from holdfast_queue")


@pytest.mark.parametrize("name", ["url", "app", "scene"])
def test_a_job_that_was_lost_in_a_database_of_the_test_is_found(sqlite_url: str, name: str) -> None:
    with closing(Holdfast(sqlite_url, open_types=True)) as app:
        lose_a_job(app)
        had = {"url": sqlite_url, "app": app, "scene": SimpleNamespace(url=sqlite_url)}[name]
        with pytest.raises(AssertionError, match="one-state"):
            check_left_behind(item_of(had=had))


def test_a_whole_database_is_asked_once_and_what_is_none_is_not(sqlite_url: str) -> None:
    item = item_of(url=sqlite_url, again=sqlite_url, number=1, word="sqlite:///nowhere.db")
    assert check_left_behind(item) == 1


def test_a_server_of_the_test_s_own_is_asked_while_it_runs(private_postgres: Any) -> None:
    item = item_of()
    item.stash[STARTED] = [server := private_postgres()]
    assert check_left_behind(item) == 1
    server.stop("kill")
    assert check_left_behind(item) == 0


def test_all_tests_of_dying_processes_are_asked_but_those_that_break_laws_on_purpose() -> None:
    assert is_asked(item_of("chaos/test_any.py"))
    assert is_asked(item_of("streams/test_any.py"))
    assert is_asked(item_of(marks=("torture",)))
    assert not is_asked(item_of())
    assert not is_asked(item_of("/checkouts/streams/tests/verify/test_any.py"))
    assert not is_asked(item_of("chaos/test_any.py", marks=("breaks_laws",)))
