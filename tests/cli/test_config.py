"""The effective settings are shown with their origin and without secrets."""

import json
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_value_tells_its_origin(
    run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_BATCH_SIZE", "20")
    (elsewhere / "holdfast.toml").write_text("slots = 3\n")
    rows = json.loads(run("config", "show", "--origin", "-o", "json").stdout)
    found = {each["name"]: (each["value"], each["origin"]) for each in rows}
    assert found["OUTBOX_BATCH_SIZE"] == ("20", "env")
    assert found["HOLDFAST_SLOTS"] == ("3", "holdfast.toml")
    assert found["HOLDFAST_SCHEMA"] == ("holdfast", "default")


def test_a_secret_is_shown_nowhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://app:hunter2@db/shop")
    result = run("config", "show", "--origin")
    assert result.exit_code == 0
    assert "hunter2" not in result.output


def test_a_misspelt_variable_is_pointed_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_BATCH_SICE", "20")
    assert "did you mean OUTBOX_BATCH_SIZE?" in run("config", "show").stderr


def test_settings_that_contradict_each_other_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_LEASE_HEARTBEAT_MS", "20000")
    monkeypatch.setenv("OUTBOX_LEASE_DURATION_MS", "30000")
    result = run("config", "show")
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("error[HF017]: heartbeat is too slow for the lease\n")


def test_commands_use_the_database_of_the_file(run: Run, elsewhere: Path) -> None:
    (elsewhere / "holdfast.toml").write_text('url = "sqlite:///shop.db"\n')
    assert run("migrate").exit_code == 0
    assert (elsewhere / "shop.db").exists()
    assert run("status").exit_code == 0
