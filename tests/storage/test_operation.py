"""Operations are generators; the two drivers run them alike."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.storage.operation import Op, Row, Statement, run, run_async

ONE, TWO = Statement("one", {"a": 1}), Statement("two", {"a": None})


class Recorder:
    """Answers every statement with its own name and remembers it; one name makes it fail."""

    def __init__(self, failing: str = "") -> None:
        self.seen: list[Statement] = []
        self._failing = failing

    def execute(self, statement: Statement) -> list[Row]:
        self.seen.append(statement)
        if statement.name == self._failing:
            raise LookupError(statement.name)
        return [(statement.name,)]


class AsyncRecorder(Recorder):
    """The same in the other colour."""

    async def execute(self, statement: Statement) -> list[Row]:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().execute(statement)


def drive_sync(op: Op[Any], failing: str = "") -> tuple[Any, list[Statement]]:
    recorder = Recorder(failing)
    return run(op, recorder), recorder.seen


def drive_async(op: Op[Any], failing: str = "") -> tuple[Any, list[Statement]]:
    recorder = AsyncRecorder(failing)
    return asyncio.run(run_async(op, recorder)), recorder.seen


Drive = Callable[..., tuple[Any, list[Statement]]]


@pytest.fixture(params=[drive_sync, drive_async], ids=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Drive:
    """Each driver in turn."""
    found: Drive = request.param
    return found


def both() -> Op[list[Row]]:
    first = yield ONE
    second = yield TWO
    return first + second


def nothing() -> Op[str]:
    yield from ()
    return "done"


def forgiving() -> Op[str]:
    try:
        yield ONE
    except LookupError as error:
        rows = yield TWO
        return f"{error} then {rows[0][0]}"
    return "no error"


def test_statements_run_in_order_and_rows_come_back(drive: Drive) -> None:
    assert drive(both()) == ([("one",), ("two",)], [ONE, TWO])


def test_an_operation_may_need_no_statement(drive: Drive) -> None:
    assert drive(nothing()) == ("done", [])


def test_an_error_is_raised_inside_the_operation(drive: Drive) -> None:
    assert drive(forgiving(), failing="one") == ("one then two", [ONE, TWO])


def test_an_error_that_the_operation_does_not_catch_leaves_it(drive: Drive) -> None:
    with pytest.raises(LookupError, match="two"):
        drive(both(), failing="two")


def test_an_operation_is_closed_when_it_fails(drive: Drive) -> None:
    closed = []

    def careful() -> Op[None]:
        try:
            yield ONE
        finally:
            closed.append(True)

    with pytest.raises(LookupError):
        drive(careful(), failing="one")
    assert closed == [True]
