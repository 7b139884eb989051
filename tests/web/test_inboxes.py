"""Inboxes over HTTP and on the page of streams."""

from __future__ import annotations

import pytest

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.inbox.message import RawMessage
from tests.web.conftest import Api

INBOXES_PATH = "/api/v1/inboxes"
ONE = f"{INBOXES_PATH}/stripe"
FORM = {"Sec-Fetch-Site": "same-origin"}
IDS = [f"00000000-0000-7000-8000-00000000000{n}" for n in range(3)]


@pytest.fixture
def parked(app: Holdfast) -> Holdfast:
    """An inbox with three parked messages."""
    app.database.run(INBOXES.register("stripe", "http", "POST /inbox/stripe", None))
    for id in IDS:
        raw = RawMessage("stripe", f"evt {id}", b"", {})
        app.database.run(INBOXES.park(id, raw, '""', "ValueError: no", 1, None))
    return app


async def test_viewers_read_and_operators_act_on_parked_messages(
    api: Api, parked: Holdfast
) -> None:
    (item,) = (await api.call(Role.VIEWER, "GET", INBOXES_PATH)).json()["items"]
    assert (item["name"], item["state"], item["parked"]) == ("stripe", "open", 3)
    found = (await api.call(Role.VIEWER, "GET", f"{ONE}/parked")).json()["items"]
    assert [each["id"] for each in found] == IDS
    assert all("body" not in each for each in found)
    for verb, role in (("retry", Role.VIEWER), ("skip", Role.VIEWER), ("remove", Role.OPERATOR)):
        assert (await api.call(role, "POST", f"{ONE}/{verb}", json={})).status_code == 403
    wanted = {"ids": IDS[:1], "reason": "fixed"}
    retried = await api.call(Role.OPERATOR, "POST", f"{ONE}/retry", json=wanted)
    assert retried.json()["ids"] == IDS[:1]
    skipped = await api.call(Role.OPERATOR, "POST", f"{ONE}/skip", json={})
    assert sorted(skipped.json()["ids"]) == IDS[1:]
    missing = await api.call(Role.OPERATOR, "POST", f"{INBOXES_PATH}/nobody/skip", json={})
    assert (missing.status_code, missing.json()["code"]) == (404, "HF191")
    audit = (await api.call(Role.VIEWER, "GET", "/api/v1/audit")).json()["items"]
    assert {each["action"] for each in audit} >= {"inbox.retry", "inbox.skip"}
    removed = await api.call(Role.DEVELOPER, "POST", f"{ONE}/remove", json={})
    assert removed.status_code == 200
    assert (await api.call(Role.VIEWER, "GET", INBOXES_PATH)).json()["items"] == []


async def test_the_page_shows_inboxes_and_retries_what_they_parked(
    api: Api, parked: Holdfast
) -> None:
    async with api.client(Role.OPERATOR) as client:
        page = await client.get("/streams")
        assert page.status_code == 200
        assert "POST /inbox/stripe" in page.text
        fields = {"move": "retry", "name": "stripe", "back": "/streams"}
        done = await client.post("/streams/inbox", data=fields, headers=FORM)
        assert done.status_code == 303
    due = parked.database.read(INBOXES.parked_messages("stripe", "due", 10))
    assert len(due) == 3
