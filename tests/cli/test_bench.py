"""`holdfast bench` hands over to the bench of the checkout."""

from pathlib import Path

import pytest

import holdfast
from tests.cli.conftest import Run


def test_an_unknown_figure_is_refused_by_the_bench_itself(run: Run) -> None:
    assert run("bench", "--only", "speed").exit_code == 2


def test_an_installed_package_says_where_the_bench_is(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(holdfast, "__file__", str(tmp_path / "lib" / "holdfast" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    result = run("bench")
    assert result.exit_code == 2
    assert "checkout" in result.stderr
