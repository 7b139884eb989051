"""Schedules on the command line and in the doctor."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.main import cli
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast_schedules import add_schedules
from holdfast_schedules.schedule_store import SCHEDULES, MovedSchedule
from tests.schedules.test_schedule_processes import APPLICATION


def call(url: str, *words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(cli, ["schedules", *words, "--url", url])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if "json" in words else result.output


def make_late(app: Holdfast, name: str, by_s: int) -> None:
    record = app.database.run(SCHEDULES.get(name))
    assert record is not None
    due = record.now - by_s * 1_000_000
    app.database.run(SCHEDULES.move([MovedSchedule(name, due, due, None, None)]))


def test_the_command_line_sets_shows_changes_and_deletes_schedules(url: str) -> None:
    new = ("--new-type", "--every", "1h", "--overlap", "skip", "--reason", "ordered")
    call(url, "set", "report:7", "report.send", '{"customer": 7, "password": "s"}', *new)
    call(
        url,
        "set",
        "report:8",
        "report.send",
        "8",
        "--cron",
        "0 9 * * *",
        "--timezone",
        "UTC",
        code=3,
    )
    (row,) = call(url, "list", "report:", "-o", "json")
    assert (row["name"], row["state"], row["words"]) == ("report:7", "scheduled", "every hour")
    shown = call(url, "show", "report:7", "-o", "json")
    assert shown["input"]["customer"] == 7
    assert shown["input"]["password"] != "s"
    assert shown["why"].startswith("Next job in")
    call(url, "pause", "report:7", "--reason", "holiday")
    assert "Paused by" in call(url, "show", "report:7")
    call(url, "resume", "report:7")
    call(url, "run-now", "report:7")
    (slot,) = call(url, "show", "report:7", "-o", "json")["slots"]
    assert (slot["requested"], slot["job_state"]) == (True, "pending")
    newest = call(url, "show", "report:7").splitlines()[-1].split()
    assert ("yes" in newest, "True" in newest) == (True, False)
    # Now that the database knows the type, it is no longer new.
    call(url, "set", "report:8", "report.send", "8", "--cron", "0 9 * * mon")
    assert "would" in call(url, "set", "x", "report.send", "--every", "1m", "--dry-run")
    assert len(call(url, "list", "-o", "json")) == 2
    for move in ("pause", "delete"):
        for more in ((), ("--dry-run",)):
            assert "HF220" in call(url, move, "report:7", "report:9", *more, code=3)
    assert [each["state"] for each in call(url, "list", "-o", "json")] == ["scheduled"] * 2
    call(url, "delete", "report:7", "report:8")
    assert call(url, "list", "-o", "json") == []
    assert "HF220" in call(url, "show", "report:7", code=3)
    both = ("set", "a", "report.send", "--every", "1m", "--cron", "* * * * *")
    assert "HF081" in call(url, *both, code=2)


def test_the_command_line_checks_the_input_with_an_application(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schedule_shop.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", sqlite_url)
    words = ["schedules", "set", "a", "report.send", '"seven"', "--every", "1m"]
    result = CliRunner().invoke(cli, [*words, "--app", "schedule_shop:app"])
    assert "HF022" in result.output
    assert call(sqlite_url, "list", "-o", "json") == []


def test_the_doctor_names_late_schedules_and_types_that_nobody_handles(url: str) -> None:
    app = Holdfast(url, open_types=True)
    app.migrate()
    schedules = add_schedules(app)

    async def examine() -> list[Finding]:
        try:
            return await run_checks(app.database, read_settings({}))
        finally:
            await app.aclose()

    def verdicts() -> dict[str, Finding]:
        found = asyncio.run(examine())
        return {each.check: each for each in found if each.check.startswith("schedules_")}

    assert verdicts() == {}
    with app.transaction() as tx:
        schedules.set(tx, "report:7", "report.send", 7, every="1h")
        schedules.set(tx, "report:8", "report.send", 8, every="1h")
        schedules.pause(tx, "report:8")
    found = verdicts()
    assert [each.verdict for each in found.values()] == ["ok", "warning", "ok"]
    assert "report.send" in found["schedules_types"].measured
    make_late(app, "report:7", 600)
    found = verdicts()
    assert found["schedules_late"].verdict == "problem"
    assert "1 of report.send, the first 10 min" in found["schedules_late"].measured
    (late,) = call(url, "list", "--late", "-o", "json")
    assert (late["name"], late["state"]) == ("report:7", "late")
    assert "no live worker handles report.send" in late["why"]
    app.close()
