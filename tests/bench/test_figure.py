"""The bench's own arithmetic: what a verdict, a ratio and an interleaved contest mean."""

import json
from pathlib import Path

import pytest

from holdfast_bench.catalogue import FAMILIES, KEPT, NAMES
from holdfast_bench.measurement import Contest, make_result
from tests.bench.test_command import bench


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.4, "below"), (0.5, "floor"), (0.79, "floor"), (0.8, "goal")]
)
def test_more_is_better_when_the_goal_lies_above_the_floor(ours: float, verdict: str) -> None:
    result = make_result("drain", "jobs/s", [ours * 50], [50.0], floor=0.5, goal=0.8)
    assert (result.ratio, result.verdict) == (ours, verdict)


@pytest.mark.parametrize(("ours", "verdict"), [(701, "below"), (700, "floor"), (600, "goal")])
def test_a_count_without_a_baseline_is_held_to_its_floor_itself(ours: float, verdict: str) -> None:
    assert make_result("wal", "bytes", [ours], floor=700, goal=600).verdict == verdict


def test_contenders_take_turns_and_the_first_of_a_round_changes() -> None:
    order: list[str] = []

    def contender(name: str) -> float:
        order.append(name)
        return 1.0

    Contest(3, {"ours": lambda: contender("ours"), "limit": lambda: contender("limit")})
    assert order == ["ours", "limit", "limit", "ours", "ours", "limit"]


def test_a_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians() -> None:
    ours, other = iter([10.0, 50.0, 90.0]), iter([20.0, 500.0, 100.0])
    contest = Contest(3, {"ours": lambda: next(ours), "baseline": lambda: next(other)})
    result = contest.result("drain", "jobs/s")
    assert (result.ratio, result.ours, result.baseline, result.spread) == (0.5, 50.0, 100.0, 1.6)


def test_a_result_shows_figures_that_a_reader_can_take_in() -> None:
    result = make_result("drain", "jobs/s", [12345.678], [98.7654], beside={"x": 0.12345})
    assert (result.ours, result.baseline, result.beside) == (12346, 98.765, {"x": 0.123})


def test_every_figure_has_one_name() -> None:
    assert len(NAMES) == len(set(NAMES))


def test_what_is_promised_is_measured_on_every_server() -> None:
    each = {name for family in FAMILIES if family.place == "each server" for name in family.figures}
    assert set(KEPT) <= each


def test_the_bench_prints_machine_settings_and_results_as_json(tmp_path: Path) -> None:
    done = bench("--tiny", "--only", "import_holdfast", "-o", "json")
    report = json.loads(done.stdout)
    assert set(report) == {"machine", "settings", "results", "peers", "skipped", "failed"}
    assert report["settings"]["servers"] == {}, "a figure that needs no server starts none"
    (result,) = report["results"]
    assert {"name", "ours", "baseline", "ratio", "unit", "spread", "floor", "goal"} <= set(result)

    file = tmp_path / "run.json"
    file.write_text(done.stdout)
    again = bench("--print", str(file), "-o", "markdown")
    assert "| import_holdfast |" in again.stdout
