"""The bench's own arithmetic: what a verdict, a ratio and an interleaved contest mean."""

import json

import pytest

from holdfast_bench.catalogue import NAMES
from holdfast_bench.measurement import Contest, FigureTarget, make_result
from tests.bench.test_command import bench


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.4, "below"), (0.5, "floor"), (0.79, "floor"), (0.8, "goal")]
)
def test_more_is_better_when_the_goal_lies_above_the_floor(value: float, verdict: str) -> None:
    assert FigureTarget("ratio", value, floor=0.5, goal=0.8).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(11, "below"), (10, "floor"), (5, "goal")])
def test_less_is_better_when_the_goal_lies_below_the_floor(value: float, verdict: str) -> None:
    assert FigureTarget("ms", value, floor=10, goal=5).verdict == verdict


def test_contenders_take_turns_and_the_first_of_a_round_changes() -> None:
    order: list[str] = []

    def contender(name: str) -> float:
        order.append(name)
        return 1.0

    Contest(3, {"ours": lambda: contender("ours"), "limit": lambda: contender("limit")})
    assert order == ["ours", "limit", "limit", "ours", "ours", "limit"]


def test_a_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians() -> None:
    ours, limit = iter([10.0, 50.0, 90.0]), iter([20.0, 500.0, 100.0])
    contest = Contest(3, {"ours": lambda: next(ours), "limit": lambda: next(limit)})
    assert contest.ratio("ours", "limit") == 0.5
    assert contest.median("ours") == 50.0
    assert contest.spread("ours") == 1.6


def test_a_result_shows_figures_that_a_reader_can_take_in() -> None:
    result = make_result("drain", "jobs/s", ours=12345.678, limit=98.7654, beside={"x": 0.12345})
    assert (result.ours, result.limit, result.beside) == (12346, 98.765, {"x": 0.123})


def test_every_figure_has_one_name() -> None:
    assert len(NAMES) == len(set(NAMES))


def test_the_bench_prints_machine_settings_and_results_as_json() -> None:
    done = bench("--tiny", "--only", "import_holdfast", "-o", "json")
    report = json.loads(done.stdout)
    assert set(report) == {"machine", "settings", "results", "skipped", "failed"}
    assert report["settings"]["servers"] == {}, "a figure that needs no server starts none"
    (result,) = report["results"]
    assert {"name", "ours", "limit", "ratio", "unit", "spread"} <= set(result)
