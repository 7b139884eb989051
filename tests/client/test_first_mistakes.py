"""What people write on their first day, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Job, Start
from holdfast.errors import InvalidName, InvalidOption, UnsupportedConnection


@pytest.fixture
def app(sqlite_url: str) -> Holdfast:
    app = Holdfast(sqlite_url)
    app.migrate()
    return app


def test_a_start_without_a_transaction_says_that_it_comes_first(app: Holdfast) -> None:
    @app.job("order.charge")
    def charge(job: Job[int]) -> None:
        pass

    start: Any = app.start
    with pytest.raises(UnsupportedConnection, match=r"first argument of app\.start is your tran"):
        start(charge, 1)
    with pytest.raises(UnsupportedConnection, match=r"write app\.start\(tx, charge, …\)"):
        start(charge, 1, key="a")
    with pytest.raises(UnsupportedConnection, match=r"write app\.start\(tx, 'order\.charge', …\)"):
        start("order.charge", 1)
    publish: Any = app.publish
    with pytest.raises(UnsupportedConnection, match=r"first argument of app\.publish"):
        publish("order.paid", {"id": 1})


@pytest.mark.parametrize(
    ("decorator", "written"),
    [("job", r'@app\.job\("'), ("on", r'@app\.on\("'), ("cycle", r'@app\.cycle\("')],
)
def test_a_decorator_without_parentheses_says_what_to_write(
    app: Holdfast, decorator: str, written: str
) -> None:
    def handle(job: Job[int]) -> None:
        pass

    with pytest.raises(InvalidName, match=written):
        getattr(app, decorator)(handle)


@pytest.mark.parametrize(
    ("option", "meant"),
    [("dealy", "after"), ("prority", "priority"), ("countdown", "after"), ("eta", "at")],
)
def test_a_misspelled_option_names_the_one_that_was_meant(
    app: Holdfast, option: str, meant: str
) -> None:
    options: Any = {option: "5s"}
    calls: Any = app
    with app.transaction() as tx:
        attempts: list[Callable[[], object]] = [
            lambda: calls.start(tx, "order.charge", 1, **options),
            lambda: calls.start_many(tx, "order.charge", [1], **options),
            lambda: calls.start_all(tx, [Start("order.charge", 1, **options)]),
            lambda: calls.publish(tx, "order.paid", 1, **options),
        ]
        for call in attempts:
            with pytest.raises(InvalidOption, match=rf"no option '{option}'.*mean {meant}\?"):
                call()


def test_an_option_like_no_other_lists_them_all(app: Holdfast) -> None:
    calls: Any = app
    with app.transaction() as tx, pytest.raises(InvalidOption, match="use one of after, at, bl"):
        calls.start(tx, "order.charge", 1, zzzz=1)


def test_a_misspelled_option_of_a_cycle_names_the_one_that_was_meant(app: Holdfast) -> None:
    calls: Any = app
    with pytest.raises(InvalidOption, match=r"no option 'evry'.*mean every\?"):
        calls.cycle("reminders", evry="1h")
