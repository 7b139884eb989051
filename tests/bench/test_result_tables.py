"""Figures are lines in a pipe and where a table does not fit, and a table where it does."""

import sys
from typing import Any

import pytest

from holdfast_bench.measurement import FigureTarget, make_result
from holdfast_bench.result_tables import print_table

RESULT = make_result(
    "drain",
    "jobs/s",
    ours=21_500,
    limit=20_000,
    against="limit loop",
    beside={"worker_us": 26, "server_us": 30},
    target=FigureTarget("ratio", 1.07, floor=0.7, goal=0.9),
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make stdout a terminal of so many columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")

    return make


def test_a_figure_in_a_pipe_is_one_line_that_names_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([RESULT])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("drain: ")
    assert "ratio 1.07" in line
    assert "worker_us 26, server_us 30" in line


def test_a_narrow_terminal_gets_the_same_line(
    terminal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(60)
    print_table([RESULT])
    assert capsys.readouterr().out.startswith("drain: ")


def test_a_wide_terminal_gets_a_table(terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(240)
    print_table([RESULT])
    shown = capsys.readouterr().out
    assert "┃" in shown
    assert "1.07" in shown
