"""Relays on the command line, over HTTP, in the doctor; what cannot be one; and that clients are imported when used."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.core.errors import InvalidName, InvalidOption, MissingExtra
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast_streams import JetStream, RedisStream
from holdfast_streams.errors import DuplicateReader
from holdfast_streams.reader_store import LINES, LineToken
from holdfast_streams.relay import relay as relay_module
from holdfast_streams.relay.cloud_events import header_text, time_text
from holdfast_streams.relay.relay_store import RELAYS
from tests.streams.scene import Scene

TOKEN = "00000000-0000-7000-8000-000000000001"
TO = JetStream("nats://shop:secret@a:4222,b:4222", stream="ORDERS")


@pytest.fixture
def ahead(scene: Scene) -> Scene:
    """A relay one of whose lines waits for its broker, and another for a rebase."""
    scene.streams.relay("order.*", to=TO)
    scene.streams.register()
    run = scene.app.database.run
    run(LINES.join("w", ["ORDERS"], 60_000))
    run(LINES.claim("ORDERS", "w", TOKEN, 16, 60_000))
    run(RELAYS.block(LineToken("ORDERS", 3, TOKEN), "away", "[HF186] NATS is gone", 100))
    run(RELAYS.raise_epoch("ORDERS", 4))
    run(RELAYS.block(LineToken("ORDERS", 5, TOKEN), "ahead", "order.paid x at place 7", 100))
    return scene


def call(scene: Scene, *words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["streams", *words, "--url", scene.url])
    assert result.exit_code == exit_code, result.output
    return result.stdout if "json" in words else result.output


def test_the_command_line_says_where_a_relay_sends_and_why_its_lines_wait(ahead: Scene) -> None:
    (row,) = json.loads(call(ahead, "list", "-o", "json"))
    assert (row["kind"], row["state"]) == ("relay", "blocked")
    assert row["target"] == "ORDERS at nats://a:4222,b:4222"
    assert len(row["waits"]) == 2
    said = call(ahead, "lag", "ORDERS")
    assert "1 line waits: the broker is away since" in said
    assert "1 line waits: the stream is ahead of this database since" in said
    assert "ORDERS at nats://a:4222" in call(ahead, "list").replace("\n", " ")
    ahead.app.close()


def test_a_rebase_is_audited_and_ends_only_what_is_ahead(ahead: Scene) -> None:
    call(ahead, "rebase", "ORDERS", "--reason", "restored to 02:00")
    lines = ahead.lines("ORDERS")
    assert [each.line for each in lines if each.blocked] == [3]
    assert lines[5].worker is None
    result = CliRunner().invoke(cli, ["audit", "list", "-o", "json", "--url", ahead.url])
    (entry, *_) = json.loads(result.stdout)
    assert entry["action"] == "stream.rebase"
    assert entry["reason"] == "restored to 02:00"
    (row,) = json.loads(call(ahead, "list", "-o", "json"))
    assert row["epoch"] == 5
    assert "HF185" in call(ahead, "rebase", "ORDERS", exit_code=4)
    ahead.app.close()


async def test_the_doctor_reports_relays_that_wait(ahead: Scene) -> None:
    found = await run_checks(ahead.app.database, read_settings({}))
    (relays,) = [each for each in found if each.check == "stream_relays"]
    assert relays.verdict == "problem"
    assert "ORDERS: 1 line waits: the stream is ahead" in relays.measured
    await ahead.app.aclose()


def test_what_cannot_be_a_relay_is_refused(scene: Scene) -> None:
    relay: Any = scene.streams.relay
    relay("order.*", to=TO)
    with pytest.raises(DuplicateReader):
        relay("order.*", to=JetStream("nats://c", stream="ORDERS"))
    with pytest.raises(DuplicateReader, match="same stream"):
        relay("mail.*", to=TO, name="other")
    other = RedisStream("redis://a", stream="other")
    with pytest.raises(InvalidName):
        relay(to=other)
    with pytest.raises(InvalidOption):
        relay("order.*", to="nats://a")
    with pytest.raises(InvalidOption):
        relay("order.*", to=other, batch=1_001)
    with pytest.raises(InvalidOption):
        relay("order.*", to=other, order="line")
    with pytest.raises(InvalidOption):
        relay("order.*", to=other, subject="orders.{line}.{event}")
    for subject in ("{line}.{event}", "orders.{event}", "orders.{line}", "orders.>.{line}.{event}"):
        with pytest.raises(InvalidOption):
            relay("order.*", to=JetStream("nats://c", stream="C"), subject=subject)


def test_a_missing_client_names_its_extra(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "find_spec", lambda name: None)
    for to, extra in ((TO, "nats"), (RedisStream("redis://a", stream="x"), "redis")):
        with pytest.raises(MissingExtra, match=rf"holdfast-streams\[{extra}\]"):
            scene.streams.relay("order.*", to=to)


def test_no_client_is_imported_before_a_relay_runs() -> None:
    program = (
        "import sys; from holdfast import Holdfast; from holdfast_streams import JetStream, add_streams;"
        "add_streams(Holdfast('sqlite:///x.db')).relay('order.*', to=JetStream('nats://a', stream='A'));"
        "print([each for each in ('nats', 'redis') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_headers_are_plain_ascii() -> None:
    assert header_text("order 17\r\nx: ä%") == "order%2017%0D%0Ax:%20%C3%A4%25"
    assert header_text("order-17/x") == "order-17/x"
    assert time_text(1_700_000_000_123_456) == "2023-11-14T22:13:20.123456Z"
