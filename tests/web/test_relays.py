"""Relays over HTTP and on the page of streams: where they send, why they wait, and rebasing them."""

from __future__ import annotations

import pytest

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast_streams import JetStream, add_streams
from holdfast_streams.reader_store import LINES, LineToken
from holdfast_streams.relay.relay_store import RELAYS
from tests.web.conftest import Api

TOKEN = "00000000-0000-7000-8000-000000000001"
FORM = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def ahead(app: Holdfast) -> None:
    """A relay with a line whose stream is ahead."""
    streams = add_streams(app)
    streams.relay("order.*", to=JetStream("nats://me:secret@a:4222", stream="ORDERS"))
    streams.register()
    run = app.database.run
    run(LINES.join("w", ["ORDERS"], 60_000))
    run(LINES.claim("ORDERS", "w", TOKEN, 16, 60_000))
    run(RELAYS.block(LineToken("ORDERS", 5, TOKEN), "ahead", "order.paid x at place 7", 100))


@pytest.mark.usefixtures("ahead")
async def test_developers_rebase_a_relay_over_http(api: Api) -> None:
    one = (await api.call(Role.VIEWER, "GET", "/api/v1/streams/ORDERS")).json()
    assert (one["kind"], one["state"], one["target"]) == (
        "relay",
        "blocked",
        "ORDERS at nats://a:4222",
    )
    assert "1 line waits: the stream is ahead of this database since" in one["health"]
    path = "/api/v1/streams/ORDERS/rebase"
    assert (await api.call(Role.OPERATOR, "POST", path)).status_code == 403
    done = await api.call(Role.DEVELOPER, "POST", path, json={"reason": "restored"})
    assert (done.status_code, done.json()["lines"]) == (200, [5])
    again = await api.call(Role.DEVELOPER, "POST", path)
    assert (again.status_code, again.json()["code"]) == (409, "HF185")


@pytest.mark.usefixtures("ahead")
async def test_the_page_says_why_a_relay_waits_and_offers_a_rebase(api: Api) -> None:
    async with api.client() as client:
        await client.post("/sign-in", data={"token": api.secret(Role.DEVELOPER)}, headers=FORM)
        page = (await client.get("/streams")).text
        assert "ORDERS at nats://a:4222" in page
        assert "secret" not in page
        assert "the stream is ahead of this database" in page
        assert "Rebase ORDERS?" in page
        sent = await client.post(
            "/streams", data={"move": "rebase", "name": "ORDERS"}, headers=FORM
        )
        assert sent.status_code == 303
        assert "Rebase ORDERS?" not in (await client.get("/streams")).text
