"""Readers of the event log over HTTP and on their page: reading for viewers, changes for others, all of it audited."""

from __future__ import annotations

import pytest

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast_streams.reader_store import LINES, READERS, LineToken
from tests.web.conftest import Api

STREAMS = "/api/v1/streams"
ONE = f"{STREAMS}/revenue"
TOKEN = "00000000-0000-7000-8000-000000000001"
FORM = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def behind(app: Holdfast) -> Holdfast:
    """A reader that nobody runs, two events behind, with one parked."""
    run = app.database.run
    run(READERS.register("revenue", "consumer", ["order.*"], None))
    with app.transaction() as tx:
        for n in range(3):
            app.publish(tx, "order.paid", {"n": n}, key="a")
    (line,) = [each for each in app.database.read(READERS.lines()) if each.lag]
    run(LINES.claim("revenue", "gone", TOKEN, 16, 0))
    held = LineToken("revenue", line.line, TOKEN)
    run(LINES.park(held, "failed", [line.position + 1], "ValueError: no", 5))
    run(LINES.advance(held, line.position, line.position + 1))
    return app


async def test_viewers_read_lag_per_line_and_parked_events(api: Api, behind: Holdfast) -> None:
    (item,) = (await api.call(Role.VIEWER, "GET", STREAMS)).json()["items"]
    assert (item["lag"], item["parked"], item["state"]) == (2, 1, "idle")
    assert len(item["lines"]) == 16
    parked = (await api.call(Role.VIEWER, "GET", f"{ONE}/parked")).json()["items"]
    assert [each["error"] for each in parked] == ["ValueError: no"]
    missing = await api.call(Role.VIEWER, "GET", f"{STREAMS}/nobody")
    assert (missing.status_code, missing.json()["code"]) == (404, "HF180")
    assert (await api.call(Role.VIEWER, "POST", f"{ONE}/pause", json={})).status_code == 403


async def test_operators_pause_and_skip_and_developers_rewind_and_remove(
    api: Api, behind: Holdfast
) -> None:
    for verb in ("rewind", "remove"):
        refused = await api.call(Role.OPERATOR, "POST", f"{ONE}/{verb}", json={})
        assert refused.status_code == 403
    paused = await api.call(Role.OPERATOR, "POST", f"{ONE}/pause", json={"reason": "test"})
    assert paused.json()["paused"] is True
    assert (await api.call(Role.OPERATOR, "POST", f"{ONE}/resume", json={})).status_code == 200
    retried = await api.call(Role.OPERATOR, "POST", f"{ONE}/retry", json={})
    assert len(retried.json()["ids"]) == 1
    for body in ({}, {"since": None}, {"since": "yesterday"}):
        placeless = await api.call(Role.DEVELOPER, "POST", f"{ONE}/rewind", json=body)
        assert placeless.status_code in (400, 422), placeless.text
        assert "since" in placeless.json()["detail"]
    ended = await api.call(Role.DEVELOPER, "POST", f"{ONE}/rewind", json={"since": "latest"})
    assert any(ended.json()["positions"].values())
    moved = await api.call(Role.DEVELOPER, "POST", f"{ONE}/rewind", json={"since": "earliest"})
    assert set(moved.json()["positions"].values()) == {0}
    audit = (await api.call(Role.VIEWER, "GET", "/api/v1/audit")).json()["items"]
    assert {each["action"] for each in audit} >= {"stream.pause", "stream.retry", "stream.rewind"}
    removed = await api.call(Role.DEVELOPER, "POST", f"{ONE}/remove", json={})
    assert removed.status_code == 200
    assert (await api.call(Role.VIEWER, "GET", STREAMS)).json()["items"] == []


async def test_the_page_shows_readers_and_pauses_them(api: Api, behind: Holdfast) -> None:
    async with api.client(Role.OPERATOR) as client:
        page = await client.get("/streams")
        assert page.status_code == 200
        assert "revenue" in page.text
        fields = {"move": "pause", "name": "revenue", "back": "/streams"}
        done = await client.post("/streams", data=fields, headers=FORM)
        assert done.status_code == 303
    (item,) = (await api.call(Role.VIEWER, "GET", STREAMS)).json()["items"]
    assert item["state"] == "paused"
