"""Streams on the command line and in the doctor."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast_streams.reader_store import LINES, READERS, LineToken
from tests.streams.scene import Scene

TOKEN = "00000000-0000-7000-8000-000000000001"


@pytest.fixture
def behind(scene: Scene) -> Scene:
    """A reader that nobody runs, three events behind, with one parked."""
    run = scene.app.database.run
    run(READERS.register("revenue", "consumer", ["order.*"], None))
    scene.publish(1, 2, 3, key="a")
    (line,) = [each for each in scene.lines("revenue") if each.lag]
    run(LINES.claim("revenue", "gone", TOKEN, 16, 0))
    held = LineToken("revenue", line.line, TOKEN)
    run(LINES.park(held, "failed", [line.position + 1], "ValueError: no", 5))
    run(LINES.advance(held, line.position, line.position + 1))
    return scene


def invoke(scene: Scene, *words: str) -> Result:
    return CliRunner().invoke(cli, ["streams", *words, "--url", scene.url])


def call(scene: Scene, *words: str) -> str:
    result = invoke(scene, *words)
    assert result.exit_code == 0, result.output
    return result.stdout if "json" in words else result.output


def test_the_command_line_lists_lag_and_parked_events_and_changes_readers(behind: Scene) -> None:
    (row,) = json.loads(call(behind, "list", "-o", "json"))
    assert (row["name"], row["state"], row["lag"], row["parked"]) == ("revenue", "idle", 2, 1)
    lines = json.loads(call(behind, "lag", "revenue", "-o", "json"))
    assert sum(each["lag"] for each in lines) == 2
    (parked,) = json.loads(call(behind, "parked", "revenue", "-o", "json"))
    assert parked["error"] == "ValueError: no"
    call(behind, "retry", "revenue", parked["id"])
    assert [each.state for each in behind.parked_events("revenue")] == ["due"]
    call(behind, "pause", "revenue", "--reason", "test")
    assert json.loads(call(behind, "list", "-o", "json"))[0]["state"] == "paused"
    call(behind, "resume", "revenue")
    call(behind, "rewind", "revenue", "--since", "earliest", "--yes")
    assert sum(each.lag for each in behind.lines("revenue")) >= 3
    call(behind, "remove", "revenue", "--yes")
    assert json.loads(call(behind, "list", "-o", "json")) == []
    behind.app.close()


MISSING = "0190163d-8694-739b-aea5-966c26f8ad91"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("pause revenu", 3, "revenue"),
        ("pause revenue revenu --dry-run", 3, "HF180"),
        ("lag revenu", 3, "revenue"),
        ("parked revenu", 3, "revenue"),
        ("retry revenu", 3, "revenue"),
        ("skip revenu --yes", 3, "revenue"),
        ("remove", 2, "NAME"),
        ("rewind revenu --since 2h", 3, "revenue"),
        ("rewind revenue --yes", 2, "--since"),
        ("rewind revenue --since latest", 4, "16 lines was not confirmed"),
        ("rewind revenue --since latest --dry-run", 0, "would set revenue to latest in 16 lines"),
        ("rewind revenue --since earliest --line 3", 4, "1 line was not confirmed"),
        ("rewind revenue --since yesterday-ish", 2, "yesterday-ish"),
        ("rewind revenue --since yesterday", 2, 'write "earliest", "latest", "2h"'),
        ("rewind revenue --since 2h --line 16", 3, "its lines are 0 to 15"),
        ("rewind revenue --since 2h --line 40000 --dry-run", 3, "its lines are 0 to 15"),
        ("rewind revenue --since 2h --line -1", 2, "-1"),
        ("remove revenue", 4, "1 reader was not confirmed"),
        ("rebase revenue", 4, "HF185"),
        ("recreate revenue", 4, "HF198"),
        ("parked revenue --state late", 2, "late"),
        ("retry revenue x", 2, "copy the whole id from `holdfast streams parked revenue`"),
        (f"retry revenue {MISSING}", 5, "was not changed"),
        (f"skip revenue {MISSING}", 5, "was not changed"),
        ("skip revenue", 4, "was not confirmed"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_changed(
    behind: Scene, words: str, code: int, said: str
) -> None:
    before = behind.lines("revenue"), behind.parked_events("revenue")
    result = invoke(behind, *words.split())
    assert (result.exit_code, said in result.output) == (code, True), result.output
    assert (behind.lines("revenue"), behind.parked_events("revenue")) == before
    behind.app.close()


def test_nothing_is_paused_if_one_name_is_wrong_and_all_is_skipped_only_if_confirmed(
    behind: Scene,
) -> None:
    assert invoke(behind, "pause", "revenue", "revenu").exit_code == 3
    assert json.loads(call(behind, "list", "-o", "json"))[0]["state"] == "idle"
    call(behind, "skip", "revenue", "--yes")
    assert behind.parked_events("revenue") == []
    behind.app.close()


async def test_the_doctor_reports_readers_that_nobody_runs_and_parked_events(behind: Scene) -> None:
    found = await run_checks(behind.app.database, read_settings({}))
    verdicts = {each.check: each.verdict for each in found if each.check.startswith("stream_")}
    assert verdicts["stream_readers"] == "warning"
    assert verdicts["stream_parked"] == "problem"
    assert verdicts["stream_waits"] == "ok"
    await behind.app.aclose()


def test_lag_names_the_transaction_that_a_line_waits_for(postgres_url: str) -> None:
    scene = Scene(postgres_url)
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))
    with psycopg.connect(postgres_url, autocommit=True) as publisher:
        publisher.execute("begin")
        scene.app.publish(publisher, "order.paid", {"n": 1}, key="a")
        scene.publish(2, key="a")
        row: Any = publisher.execute("select pg_current_xact_id()::text").fetchone()
        said = call(scene, "lag")
        wanted = f"waits for transaction {row[0]} of pid {publisher.info.backend_pid}, open"
        assert wanted in said
        assert wanted in call(scene, "list")
        ((listed, health),) = [
            (each["waits"], each["health"])
            for each in json.loads(call(scene, "list", "-o", "json"))
        ]
        assert wanted in listed[0]
        assert wanted in health
        publisher.execute("rollback")
        assert "waits for" not in call(scene, "lag")
    scene.app.close()
