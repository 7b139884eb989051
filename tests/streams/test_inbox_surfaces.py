"""Inboxes on the command line and in the doctor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast_streams import JetStream, Message
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.inbox.message import RawMessage
from tests.streams.inbox_scene import InboxScene


@pytest.fixture
def parked(inbox: InboxScene) -> InboxScene:
    """An inbox of webhooks with two parked messages, and one of a broker."""
    http = inbox.streams.inbox.http("stripe", verify=lambda request: True, id=lambda request: "1")
    http(lambda message, tx: None)

    @inbox.streams.inbox(JetStream("nats://ana:sesame@127.0.0.1:1", "S"))
    def paid(message: Message[Any], tx: Any) -> None: ...

    inbox.streams.register()
    for n in (1, 2):
        raw = RawMessage("stripe", f"evt_{n}", b"", {})
        id = f"00000000-0000-7000-8000-00000000000{n}"
        inbox.app.database.run(INBOXES.park(id, raw, '""', "ValueError: no", 1, None))
    return inbox


def invoke(scene: InboxScene, *words: str) -> Result:
    return CliRunner().invoke(cli, ["inbox", *words, "--url", scene.url])


def call(scene: InboxScene, *words: str) -> Any:
    result = invoke(scene, *words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "json" in words else result.output


def test_the_command_line_lists_inboxes_and_acts_on_parked_messages(parked: InboxScene) -> None:
    paid, stripe = call(parked, "list", "-o", "json")
    assert (stripe["name"], stripe["state"], stripe["parked"]) == ("stripe", "open", 2)
    assert (paid["kind"], paid["state"]) == ("jetstream", "idle")
    assert "sesame" not in paid["source"]
    first, second = call(parked, "parked", "stripe", "-o", "json")
    assert first["error"] == "ValueError: no"
    assert "would retry 1 message" in call(parked, "retry", "stripe", first["id"], "--dry-run")
    assert "1 message will be tried again" in call(parked, "retry", "stripe", first["id"])
    assert [each["state"] for each in call(parked, "parked", "stripe", "-o", "json")] == [
        "due",
        "failed",
    ]
    unknown = invoke(parked, "skip", "stripe", first["id"], second["id"], "--dry-run")
    assert "would skip 1 message" in unknown.output
    unconfirmed = invoke(parked, "skip", "stripe")
    assert (unconfirmed.exit_code, "was not confirmed" in unconfirmed.output) == (4, True)
    assert call(parked, "skip", "stripe", "--yes", "-o", "json") == [{"id": second["id"]}]
    unasked = invoke(parked, "remove", "paid", "stripe")
    assert (unasked.exit_code, "2 inboxes was not confirmed" in unasked.output) == (4, True)
    call(parked, "remove", "paid", "stripe", "--reason", "test", "--yes")
    assert call(parked, "list", "-o", "json") == []
    assert parked.parked() == []
    parked.app.close()


def test_an_unknown_inbox_is_named_with_the_nearest_and_one_that_is_read_stays(
    parked: InboxScene,
) -> None:
    unknown = invoke(parked, "parked", "strip")
    assert (unknown.exit_code, "stripe" in unknown.output) == (3, True)
    no_id = invoke(parked, "skip", "stripe", "evt_1")
    assert (no_id.exit_code, "`holdfast inbox parked stripe`" in no_id.output) == (2, True)
    parked.app.database.run(INBOXES.beat("paid", "worker", 60_000, None, None))
    refused = invoke(parked, "remove", "paid", "--yes")
    assert (refused.exit_code, "HF196" in refused.output) == (4, True)
    parked.app.close()


async def test_the_doctor_reports_brokers_that_are_away_or_not_read_and_parked_messages(
    parked: InboxScene,
) -> None:
    async def verdicts() -> dict[str, str]:
        found = await run_checks(parked.app.database, read_settings({}))
        return {each.check: each.verdict for each in found if each.check.startswith("inbox_")}

    run = parked.app.database.run
    assert await verdicts() == {"inbox_brokers": "warning", "inbox_parked": "problem"}
    run(INBOXES.beat("paid", "worker", 60_000, "refused", None))
    assert (await verdicts())["inbox_brokers"] == "problem"
    run(INBOXES.beat("paid", "worker", 60_000, None, None))
    run(INBOXES.skip_parked("stripe", None))
    assert await verdicts() == {"inbox_brokers": "ok", "inbox_parked": "ok"}
    await parked.app.aclose()
