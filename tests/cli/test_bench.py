"""`holdfast bench` hands over to the bench of the checkout."""

from pathlib import Path

import pytest

import holdfast
from holdfast.cli.exits import Exit
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "what", "help"),
    [
        ("--only latency_p9", "there is no figure 'latency_p9'", "did you mean latency_p99?"),
        ("--only speed", "there is no figure 'speed'", "there are drain,"),
        ("--quick --full", "not allowed with", "see `holdfast bench --help`"),
    ],
)
def test_what_the_bench_cannot_measure_is_refused_like_everything_else(
    run: Run, capfd: pytest.CaptureFixture[str], words: str, what: str, help: str
) -> None:
    assert run("bench", *words.split()).exit_code == Exit.USAGE
    said = capfd.readouterr().err
    assert said.startswith("error[HF091]: holdfast bench: ")
    assert what in said
    assert help in said


def test_an_installed_package_says_where_the_bench_is(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(holdfast, "__file__", str(tmp_path / "lib" / "holdfast" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    result = run("bench")
    assert result.exit_code == 2
    assert "checkout" in result.stderr
