"""Subscriptions are listed with who handles them and removed when asked for, on both stores."""

import json
import re
from time import monotonic

import pytest

from holdfast.cli import events
from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene

UNSUBSCRIBE = ("events", "unsubscribe", "order.placed")


@pytest.fixture
def orders(scene: Scene) -> Scene:
    """Two handlers of an event, of which a live worker has one."""
    scene.subscribe("order.placed", "charge", "mail")
    scene.worker("order.placed/charge")
    scene.start("order.placed/mail")
    return scene


def test_a_list_tells_since_when_and_whether_a_live_worker_handles_it(
    run: Run, orders: Scene
) -> None:
    charge, mail = json.loads(run("events", "subscriptions", "-o", "json").stdout)
    assert (charge["event"], charge["handler"], charge["workers"]) == ("order.placed", "charge", 1)
    assert (mail["type"], mail["workers"], mail["live"]) == ("order.placed/mail", 0, 1)
    assert mail["created_at"].endswith("Z")
    head, _, row = run("events", "subscriptions").stdout.splitlines()
    assert head.split() == [
        "EVENT",
        "HANDLER",
        "SINCE",
        "WORKERS",
        "OPEN",
        "JOBS",
        "REPLAYED",
        "TO",
    ]
    assert row.split()[3:] == ["none", "1", "-"]
    listed = run("events", "subscriptions", "-o", "id").stdout
    assert listed == "order.placed/charge\norder.placed/mail\n"


def test_nobody_who_subscribes_is_said_on_stderr(run: Run, scene: Scene) -> None:
    result = run("events", "subscriptions")
    assert (result.stdout, result.stderr) == ("", "no subscriptions\n")


def test_a_removed_subscription_is_told_with_what_is_left_of_it(run: Run, orders: Scene) -> None:
    assert "about to remove 1 subscription:" in run(*UNSUBSCRIBE, "mail").stderr
    result = run(*UNSUBSCRIBE, "mail", "--yes", "--reason", "handler was removed")
    assert result.exit_code == Exit.OK
    assert "order.placed is no longer delivered to mail" in result.stderr
    assert (
        "1 job already delivered will still run: `holdfast jobs list type:order.placed/mail`"
        in result.stderr
    )
    assert "no other handler" not in result.stderr
    assert "subscribes it again" not in result.stderr
    assert orders.subscribed("order.placed") == ["charge"]
    assert orders.deeds() == [
        ("subscription.remove", "subscription order.placed/mail", "handler was removed")
    ]
    assert run("jobs", "list", "type:order.placed/mail", "-o", "id").stdout


def test_the_last_subscription_of_an_event_and_a_living_handler_are_warned_of(
    run: Run, orders: Scene
) -> None:
    assert run(*UNSUBSCRIBE, "mail", "--yes").exit_code == Exit.OK
    result = run(*UNSUBSCRIBE, "charge", "--yes")
    assert "a live worker has charge and will subscribe it again" in result.stderr
    assert "no other handler subscribes to order.placed" in result.stderr


def test_a_subscription_is_not_removed_unasked(run: Run, orders: Scene) -> None:
    result = run(*UNSUBSCRIBE, "mail")
    assert result.exit_code == Exit.REFUSED
    assert "error[HF093]" in result.stderr
    dry = run(*UNSUBSCRIBE, "mail", "--dry-run", "-o", "id")
    assert (dry.exit_code, dry.stdout) == (Exit.OK, "order.placed/mail\n")
    assert orders.subscribed("order.placed") == ["charge", "mail"]
    assert orders.deeds() == []


def test_an_unknown_subscription_is_answered_with_the_nearest(run: Run, orders: Scene) -> None:
    result = run(*UNSUBSCRIBE, "mails", "--yes")
    assert result.exit_code == Exit.NOT_FOUND
    assert "error[HF028]" in result.stderr
    assert "did you mean order.placed mail?" in result.stderr


REPLAY = ("events", "replay", "order.placed", "--to", "charge")


def test_stored_events_are_replayed_to_a_handler_once(run: Run, orders: Scene) -> None:
    orders.start("order.placed/mail", input="7")
    dry = run(*REPLAY, "--since", "1d", "--dry-run", "-o", "json")
    assert "would replay 2 events to charge" in dry.stderr
    assert json.loads(dry.stdout) == [{"type": "order.placed/charge", "replayed": 2}]
    assert orders.claim("order.placed/charge") == []
    done = run(*REPLAY, "--since", "1d", "--rate", "1000/s", "--yes", "--reason", "new handler")
    assert done.exit_code == Exit.OK
    assert "replayed 2 events to charge\n" in done.stderr
    again = run(*REPLAY, "--since", "2026-01-01", "--yes")
    assert "replayed 0 events to charge\n" in again.stderr
    assert run("jobs", "list", "type:order.placed/charge", "-o", "id").stdout.count("\n") == 2
    assert orders.deeds()[0] == (
        "subscription.replay",
        "subscription order.placed/charge",
        "new handler",
    )


def test_a_replay_keeps_to_its_rate_and_says_how_far_it_is(
    run: Run, orders: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_PROGRESS_S", 0)
    for number in range(5):
        orders.start("order.placed/mail", input=str(number))
    begun = monotonic()
    dry = run(*REPLAY, "--since", "1d", "--rate", "1/m", "--dry-run")
    assert "would replay 6 events to charge" in dry.stderr
    assert re.search(r"(?m)^6 events found, up to \d{4}-\d\d-\d\d \d\d:\d\d$", dry.stderr)
    assert monotonic() - begun < 30
    begun = monotonic()
    done = run(*REPLAY, "--since", "1d", "--rate", "4/s", "--yes")
    took_s = monotonic() - begun
    assert took_s >= 1.5
    *_, last = done.stderr.splitlines()
    progress = re.findall(r"(?m)^(.+) replayed, up to \d{4}-\d\d-\d\d \d\d:\d\d$", done.stderr)
    assert list(dict.fromkeys(progress)) == ["4 events", "6 events"]
    assert last == "replayed 6 events to charge"


@pytest.mark.parametrize(
    ("since", "more", "code"),
    [("soon", (), "HF073"), ("1d", ("--rate", "fast"), "HF073"), ("9999-99-99", (), "HF073")],
)
def test_a_replay_refuses_what_it_does_not_understand(
    run: Run, orders: Scene, since: str, more: tuple[str, ...], code: str
) -> None:
    result = run(*REPLAY, "--since", since, "--yes", *more)
    assert result.exit_code == Exit.USAGE
    assert code in result.stderr


def test_a_replay_to_an_unknown_handler_names_the_nearest(run: Run, orders: Scene) -> None:
    result = run("events", "replay", "order.placed", "--to", "chrge", "--since", "1d", "--yes")
    assert result.exit_code == Exit.NOT_FOUND
    assert "order.placed charge" in result.stderr
