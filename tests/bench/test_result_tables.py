"""Figures are lines in a pipe and where a table does not fit, and a table where it does."""

import re
import sys
from typing import Any

import msgspec
import pytest

from holdfast_bench.measurement import make_result
from holdfast_bench.peer_contest import PeerRow
from holdfast_bench.result_tables import (
    PEER_FIGURES,
    print_markdown,
    print_peers,
    print_result,
    print_table,
)

RESULT = make_result(
    "drain_unhandled_backlog",
    "jobs/s",
    [21_500.0],
    [20_000.0],
    against="only waiting",
    beside={"worker_us": 26, "server_us": 30},
    floor=0.7,
    goal=0.9,
)
PEER = PeerRow(
    *("graphile-worker", "0.17.3", "defaults", "stock 15"),
    figures=dict.fromkeys(PEER_FIGURES, 23_456.0) | {"p50_ms": 999.5, "p99_ms": 999.5},
    spread={},
    notes=["the worker exited on its own"],
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
    assert line.startswith("drain_unhandled_backlog (no server): 21,500 jobs/s")
    assert "ratio 1.07 · floor 0.7 · goal 0.9 · goal" in line


def test_a_figure_on_the_way_has_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT, sys.stdout)
    assert "worker_us 26, server_us 30" in capsys.readouterr().out


def test_a_narrow_terminal_gets_the_same_line(
    terminal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(60)
    print_table([RESULT])
    assert capsys.readouterr().out.startswith("drain_unhandled_backlog ")


def test_120_columns_are_enough_for_every_table(
    terminal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(120)
    print_table([RESULT])
    print_peers([PEER])
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert sum("━━━" in line for line in lines) == 5, "tables, not lines"
    assert any("1.07" in line for line in lines)
    assert any("5 ms threads" in line for line in lines)
    assert any("lone: worker µs" in line for line in lines)
    assert max(map(len, lines)) <= 120


def test_markdown_has_a_column_for_each_server_and_the_rows_that_the_readme_quotes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_both = [msgspec.structs.replace(RESULT, server=each) for each in ("stock 15", "wheel 18")]
    ours = msgspec.structs.replace(PEER, peer="holdfast", mode="best")
    print_markdown(on_both, [ours, PEER])
    shown = capsys.readouterr().out
    assert "| figure | stock 15 | wheel 18 | against | floor | goal |" in shown
    cell = "21,500 jobs/s · 1.07"
    assert f"| drain_unhandled_backlog | {cell} | {cell} | only waiting | 0.7 | 0.9 |" in shown
    assert shown.count("| graphile-worker | defaults |") == 4, "speed, cost, steps and events"
    assert shown.count("| **holdfast** | best |") == 5, "and once more for the README"
    assert "graphile-worker (defaults, stock 15): the worker exited on its own" in shown
