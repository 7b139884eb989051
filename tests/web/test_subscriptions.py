"""Subscriptions over HTTP and on the System page, on both stores."""

from holdfast.admin.access import Role
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
