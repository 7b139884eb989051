"""With an earlier run at hand, what must not get worse is held to it."""

from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import ConfigError
from holdfast_bench.measurement import Result, make_result
from holdfast_bench.run import BenchReport, keep_to, read_report


def drain(ratio: float, name: str = "drain") -> Result:
    """A drain at this ratio of its baseline."""
    return make_result(name, "jobs/s", [ratio * 1000], [1000.0], floor=0.7, goal=0.9)


def idle(ratio: float) -> Result:
    """An idle worker at this ratio of its baseline."""
    return make_result("idle", "ms", [ratio * 100], [100.0], floor=3.0, goal=1.5)


@pytest.mark.parametrize(
    ("earlier", "later", "verdict"),
    [
        (drain(1.2), drain(1.17), "goal"),
        (drain(1.2), drain(1.15), "below"),
        (drain(0.5), drain(0.69), "below"),
        (drain(0.8), drain(0.78), "floor"),
        (idle(1.0), idle(1.02), "goal"),
        (idle(1.0), idle(1.1), "below"),
        (drain(1.2, "chain_step"), drain(1.0, "chain_step"), "goal"),
    ],
)
def test_three_hundredths_less_than_before_are_noise_and_more_are_not(
    earlier: Result, later: Result, verdict: str
) -> None:
    (result,) = keep_to([later], [earlier])
    assert result.verdict == verdict


def test_a_figure_that_was_not_measured_before_keeps_its_own_floor() -> None:
    (result,) = keep_to([drain(0.8)], [])
    assert (result.floor, result.verdict) == (0.7, "floor")


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = BenchReport({"cores": 2}, {}, [drain(1.0)], [], [], {})
    file = tmp_path / "run.json"
    file.write_bytes(msgspec.json.encode(report))
    assert read_report(str(file)) == report


def test_a_file_that_is_no_report_is_refused_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match="is not a report of this version's bench"):
        read_report(str(file))
