"""Streams on the command line and in the doctor."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

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


def call(scene: Scene, *words: str) -> str:
    result = CliRunner().invoke(cli, ["streams", *words, "--url", scene.url])
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
    call(behind, "rewind", "revenue", "--since", "earliest")
    assert sum(each.lag for each in behind.lines("revenue")) >= 3
    call(behind, "remove", "revenue")
    assert json.loads(call(behind, "list", "-o", "json")) == []
    behind.app.close()


def test_an_unknown_reader_is_named_with_the_nearest(behind: Scene) -> None:
    result = CliRunner().invoke(cli, ["streams", "pause", "revenu", "--url", behind.url])
    assert result.exit_code == 3
    assert "revenue" in result.output
    behind.app.close()


async def test_the_doctor_reports_readers_that_nobody_runs_and_parked_events(
    behind: Scene,
) -> None:
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
        assert f"waits for transaction {row[0]} of pid {publisher.info.backend_pid}, open" in said
        publisher.execute("rollback")
        assert "waits for" not in call(scene, "lag")
    scene.app.close()
