"""Subscriptions over HTTP and on the System page, on both stores."""

from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.admin.access import Role
from holdfast_dashboard import system
from tests.cli.scene import Scene
from tests.web.conftest import Api

SUBSCRIPTIONS = "/api/v1/subscriptions"


async def test_subscriptions_are_listed_with_who_handles_them(api: Api, scene: Scene) -> None:
    scene.subscribe("order.placed", "mail")
    scene.worker("order.placed/mail")
    (item,) = (await api.call(Role.VIEWER, "GET", SUBSCRIPTIONS)).json()["items"]
    assert item.pop("created_at").endswith("Z")
    assert item == {
        "type": "order.placed/mail",
        "event": "order.placed",
        "handler": "mail",
        "workers": 1,
        "live": 0,
        "keep_ms": None,
        "replayed_to": None,
    }
    page = await api.call(Role.VIEWER, "GET", "/system")
    assert "holdfast events subscriptions" in page.text


async def test_an_operator_removes_a_subscription_and_says_why(api: Api, scene: Scene) -> None:
    scene.subscribe("order.placed", "mail")
    path, why = f"{SUBSCRIPTIONS}/order.placed/mail", {"X-Reason": "handler was removed"}
    assert (await api.call(Role.VIEWER, "DELETE", path)).status_code == 403
    removed = await api.call(Role.OPERATOR, "DELETE", path, headers=why)
    assert (removed.status_code, removed.json()["others"]) == (200, [])
    assert scene.deeds() == [
        ("subscription.remove", "subscription order.placed/mail", "handler was removed")
    ]
    again = await api.call(Role.OPERATOR, "DELETE", path)
    assert (again.status_code, again.json()["code"]) == (404, "HF028")


async def test_the_system_page_removes_a_subscription(api: Api, scene: Scene) -> None:
    scene.subscribe("order.placed", "mail", "stock")
    asked = "Stop delivering order.placed to mail?"
    assert asked not in (await api.call(Role.VIEWER, "GET", "/system")).text
    assert asked in (await api.call(Role.OPERATOR, "GET", "/system")).text
    form = {"event": "order.placed", "handler": "mail", "move": "remove", "back": "/system"}
    done = await api.call(Role.OPERATOR, "POST", "/system", data=form | {"reason": "it is gone"})
    assert done.headers["Location"] == "/system?done=remove_subscription&moved=1"
    assert (
        "Subscription removed"
        in (await api.call(Role.VIEWER, "GET", done.headers["Location"])).text
    )
    assert scene.subscribed("order.placed") == ["stock"]
    assert scene.deeds() == [
        ("subscription.remove", "subscription order.placed/mail", "it is gone")
    ]


@pytest.fixture
def events(scene: Scene) -> Scene:
    """Three events that one handler got, and another that subscribed later."""
    scene.subscribe("order.placed", "mail")
    for _ in range(3):
        scene.start("order.placed/mail")
    scene.subscribe("order.placed", "stock")
    return scene


async def test_events_are_replayed_batch_by_batch_each_once(api: Api, events: Scene) -> None:
    path, since = f"{SUBSCRIPTIONS}/order.placed/stock/replay", {"since": "1d", "limit": 2}
    assert (await api.call(Role.VIEWER, "POST", path, json=since)).status_code == 403
    dry = await api.call(Role.OPERATOR, "POST", path, json=since | {"dry_run": True})
    assert dry.json()["replayed"] == 2
    assert events.deeds() == []
    found, after = [], None
    while True:
        body = since | {"after": after, "reason": "it is new"}
        batch = (await api.call(Role.OPERATOR, "POST", path, json=body)).json()
        found.append((batch["replayed"], batch["replayed_to"] is None))
        after = batch["next"]
        if after is None:
            break
    assert (found[0], found[-1]) == ((2, False), (0, True))
    assert sum(copied for copied, _ in found) == 3
    assert events.deeds() == [
        ("subscription.replay", "subscription order.placed/stock", "it is new")
    ]
    again = await api.call(Role.OPERATOR, "POST", path, json={"since": "2026-01-01"})
    assert again.json()["replayed"] == 0


@pytest.mark.parametrize(
    ("handler", "body", "status", "code"),
    [
        ("nobody", {"since": "1d"}, 404, "HF028"),
        ("stock", {"since": "yesterday"}, 400, "HF073"),
        ("stock", {"since": "1 fortnight"}, 400, "HF080"),
        ("stock", {"since": "1d", "after": "here"}, 400, "HF072"),
        ("stock", {"since": "1d", "limit": 0}, 400, "HF074"),
        ("stock", {}, 400, "HF074"),
    ],
)
async def test_a_replay_that_makes_no_sense_is_refused(
    api: Api, events: Scene, handler: str, body: dict[str, object], status: int, code: str
) -> None:
    path = f"{SUBSCRIPTIONS}/order.placed/{handler}/replay"
    refused = await api.call(Role.OPERATOR, "POST", path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code)


async def test_the_end_of_time_is_the_end_of_a_replay(api: Api, events: Scene) -> None:
    path = f"{SUBSCRIPTIONS}/order.placed/stock/replay"
    body = {"since": "9999-12-31", "after": "ffffffff-ffff-7fff-bfff-ffffffffffff"}
    answer = await api.call(Role.OPERATOR, "POST", path, json=body)
    assert answer.json() == {"replayed": 0, "replayed_to": None, "next": None}


async def test_the_system_page_replays_events(api: Api, events: Scene) -> None:
    assert "Replay events" not in (await api.call(Role.VIEWER, "GET", "/system")).text
    assert "order.placed → stock" in (await api.call(Role.OPERATOR, "GET", "/system")).text
    form = {"type": "order.placed/stock", "move": "replay", "since": "30d", "back": "/system"}
    done = await api.call(Role.OPERATOR, "POST", "/system", data=form | {"reason": "new"})
    assert done.headers["Location"] == "/system?done=replay&moved=3"
    page = await api.call(Role.VIEWER, "GET", done.headers["Location"])
    assert "Replay complete: 3 jobs added" in page.text
    assert events.deeds() == [("subscription.replay", "subscription order.placed/stock", "new")]


async def test_a_long_replay_is_continued_where_the_page_stopped(
    api: Api, events: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "REPLAY_S", 0)
    form = {"type": "order.placed/stock", "move": "replay", "since": "30d", "back": "/system"}
    done = await api.call(Role.OPERATOR, "POST", "/system", data=form)
    told = {
        name: text for name, (text,) in parse_qs(urlsplit(done.headers["Location"]).query).items()
    }
    assert (told["done"], told["moved"], told["more"]) == ("replay_part", "3", "yes")
    page = (await api.call(Role.OPERATOR, "GET", done.headers["Location"])).text
    assert "3 jobs added, events up to 20" in page
    assert f'value="{told["replay_since"]}"' in page
    assert 'value="order.placed/stock" selected' in page
    rest = await api.call(
        Role.OPERATOR, "POST", "/system", data=form | {"since": told["replay_since"]}
    )
    assert "moved" not in rest.headers["Location"]
