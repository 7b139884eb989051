"""Webhooks: who may post, what is answered, and that each message counts once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from holdfast.app import Holdfast
from holdfast.core.errors import HandlerInvalid, InvalidName, InvalidOption
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_files import add_large_values
from holdfast_streams import (
    JetStream,
    Message,
    WebhookRequest,
    add_streams,
    github_signature,
    hmac_signature,
    inbox_routes,
)
from holdfast_streams.errors import DuplicateInbox, SignatureInvalid
from holdfast_streams.inbox.inbox_store import INBOXES
from tests.streams.inbox_scene import HEADER, SECRET, InboxScene, over_asgi, signed

VERIFY = hmac_signature(SECRET, header=HEADER)


class Paid(msgspec.Struct):
    """The data of a webhook."""

    id: str
    n: int


def message_id(request: WebhookRequest) -> Any:
    return request.json["id"]


@asynccontextmanager
async def serving(scene: InboxScene) -> AsyncIterator[httpx.AsyncClient]:
    """The application's webhooks in a Starlette application of its own."""
    async with over_asgi(Starlette(routes=[*inbox_routes(scene.app)])) as client:
        yield client
    await scene.app.aclose()


def declare(scene: InboxScene, **options: Any) -> None:
    """An inbox whose handler writes down what it gets, and fails at what is below zero."""

    @scene.streams.inbox.http("shop", verify=VERIFY, id=message_id, **options)
    def shop(message: Message[Any], tx: Any) -> None:
        scene.note(message, tx)
        if message.data["n"] < 0:
            raise ValueError("a secret of the handler")


async def test_a_signed_post_is_taken_once_however_often_it_is_sent(inbox: InboxScene) -> None:
    declare(inbox)
    async with serving(inbox) as client:
        first = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": 1}))
        assert (first.status_code, first.json()) == (200, {"id": "evt_1", "status": "received"})
        again = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": 1}))
        assert (again.status_code, again.json()["status"]) == (200, "already received")
        other = await client.post("/inbox/shop", **signed({"id": "evt_2", "n": 2}))
        assert other.json()["status"] == "received"
    assert sorted(inbox.taken()) == [1, 2]
    assert [each["messages"] for each in inbox.told("inbox_received")] == [1, 1]
    assert len(inbox.told("inbox_duplicate")) == 1


async def test_an_async_handler_starts_jobs_in_the_same_transaction(inbox: InboxScene) -> None:
    @inbox.app.job("ship")
    async def ship(job: Any) -> None: ...

    @inbox.streams.inbox.http("shop", verify=VERIFY, id=message_id)
    async def shop(message: Message[Paid], tx: Any) -> None:
        await inbox.app.start(tx, "ship", {"n": message.data.n})
        if message.data.n < 0:
            raise ValueError("no")

    async with serving(inbox) as client:
        for n in (1, -1, 1):
            await client.post("/inbox/shop", **signed({"id": f"evt_{n}", "n": n}))
        bad = await client.post("/inbox/shop", **signed({"id": "evt_3", "n": "many"}))
        assert (bad.status_code, bad.json()["code"]) == (400, "HF193")
        jobs = await inbox.app.aio.jobs.list()
        assert [each.input for each in jobs.items] == [{"n": 1}]


async def test_posts_of_one_message_at_the_same_time_are_one(inbox: InboxScene) -> None:
    declare(inbox)
    async with serving(inbox) as client:
        posts = [client.post("/inbox/shop", **signed({"id": "evt_1", "n": 1})) for _ in range(12)]
        answers = [each.json()["status"] for each in await asyncio.gather(*posts)]
    assert sorted(answers) == ["already received"] * 11 + ["received"]
    assert inbox.taken() == [1]


async def test_a_failing_handler_is_rolled_back_and_answered_with_500_to_be_sent_again(
    inbox: InboxScene,
) -> None:
    declare(inbox)
    async with serving(inbox) as client:
        failed = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": -1}))
        assert (failed.status_code, failed.json()["code"]) == (500, "HF194")
        assert "secret" not in failed.text
        again = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": 1}))
        assert (again.status_code, again.json()["status"]) == (200, "received")
    assert inbox.taken() == [1]
    (told,) = inbox.told("inbox_failed")
    assert (told["inbox"], told["message_id"]) == ("shop", "evt_1")


async def test_where_the_sender_does_not_send_again_a_failed_message_is_parked(
    inbox: InboxScene,
) -> None:
    declare(inbox, on_error="park")
    async with serving(inbox) as client:
        failed = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": -1}))
        assert (failed.status_code, failed.json()["status"]) == (202, "parked")
        again = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": -1}))
        assert again.json()["status"] == "already received"
    assert inbox.taken() == []
    # Though neither a worker nor a migration has registered the inbox, operators find it.
    (shop,) = inbox.app.database.read(INBOXES.all())
    assert (shop.name, shop.parked) == ("shop", 1)
    (parked,) = inbox.parked("shop")
    assert (parked.message_id, parked.state, parked.attempts) == ("evt_1", "failed", 1)
    assert parked.error is not None
    assert "ValueError" in parked.error


async def test_a_failed_message_is_parked_where_large_values_go_to_files_and_nothing_is_sealed(
    inbox: InboxScene, tmp_path: Path
) -> None:
    add_large_values(inbox.app, f"file://{tmp_path}/files")
    declare(inbox, on_error="park")
    async with serving(inbox) as client:
        failed = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": -1}))
        assert (failed.status_code, failed.json()["status"]) == (202, "parked")
        assert [each.state for each in inbox.parked("shop")] == ["failed"]


async def test_an_id_that_no_database_can_keep_is_unreadable(inbox: InboxScene) -> None:
    def own_id(request: WebhookRequest) -> str:
        found: str = json.loads(request.body)["id"]
        return found

    @inbox.streams.inbox.http("shop", verify=VERIFY, id=own_id)
    def shop(message: Message[bytes], tx: Any) -> None: ...

    async with serving(inbox) as client:
        refused = await client.post("/inbox/shop", **signed(b'{"id": "\\ud800"}'))
        assert (refused.status_code, refused.json()["code"]) == (400, "HF193")


async def test_a_message_whose_handler_ends_the_transaction_has_failed(inbox: InboxScene) -> None:
    @inbox.streams.inbox.http("shop", verify=VERIFY, id=message_id, on_error="park")
    def shop(message: Message[Any], tx: Any) -> None:
        inbox.note(message, tx)
        tx.execute("rollback")

    async with serving(inbox) as client:
        failed = await client.post("/inbox/shop", **signed({"id": "evt_1", "n": 1}))
        assert (failed.status_code, failed.json()["status"]) == (202, "parked")
    (parked,) = inbox.parked("shop")
    assert parked.error is not None
    assert "NoTransaction" in parked.error


@pytest.mark.parametrize(
    ("path", "post", "status", "code"),
    [
        ("/inbox/shop", signed({"id": "1", "n": 1}, "wrong"), 401, "HF192"),
        ("/inbox/shop", {"content": b"{}"}, 401, "HF192"),
        ("/inbox/nobody", signed({"id": "1", "n": 1}), 404, "HF191"),
        ("/inbox/stream", signed({"id": "1", "n": 1}), 404, "HF191"),
        ("/inbox/shop", signed(b"not JSON"), 400, "HF193"),
        ("/inbox/shop", signed({"n": 1}), 400, "HF193"),
        ("/inbox/shop", signed([1]), 400, "HF193"),
        ("/inbox/shop", signed({"id": "x" * 501, "n": 1}), 400, "HF193"),
        ("/inbox/shop", signed({"id": "a\0b", "n": 1}), 400, "HF193"),
        ("/inbox/shop", signed({"id": "1", "n": "x" * 2000}), 413, "HF075"),
    ],
)
async def test_what_is_refused_says_why_and_leaves_nothing(
    inbox: InboxScene, path: str, post: dict[str, Any], status: int, code: str
) -> None:
    declare(inbox, limit=2000)

    @inbox.streams.inbox(JetStream("nats://127.0.0.1:1", "S"))
    def stream(message: Message[Any], tx: Any) -> None: ...

    async with serving(inbox) as client:
        answer = await client.post(path, **post)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert inbox.taken() == []
    assert inbox.remembered() == 0
    refused = [each["code"] for each in inbox.told("inbox_refused")]
    assert refused == ([code] if status != 404 else [])


async def test_a_body_that_does_not_say_how_long_it_is_is_cut_at_the_limit(
    inbox: InboxScene,
) -> None:
    declare(inbox, limit=2000)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    async with serving(inbox) as client:
        answer = await client.post("/inbox/shop", content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (413, "HF075")
    assert answer.json()["help"] == "send less, or raise limit= of the inbox"


async def test_while_the_database_is_away_the_sender_is_asked_to_come_back() -> None:
    app = Holdfast("postgresql://nobody@127.0.0.1:1/none")

    @add_streams(app).inbox.http("shop", verify=VERIFY, id=message_id)
    def shop(message: Message[Any], tx: Any) -> None: ...

    async with over_asgi(Starlette(routes=[*inbox_routes(app)])) as client:
        answer = await client.post("/inbox/shop", **signed({"id": "1"}))
    assert (answer.status_code, answer.json()["code"]) == (503, "HF043")
    assert answer.headers["Retry-After"] == "1"
    await app.aclose()


async def test_verify_may_be_any_function_sync_or_async(inbox: InboxScene) -> None:
    async def from_tenant(request: WebhookRequest) -> bool:
        return request.header("X-Tenant") == "acme"

    def broken(request: WebhookRequest) -> None:
        raise KeyError("no such tenant")

    for name, verify in (("tenant", from_tenant), ("broken", broken)):
        declared = inbox.streams.inbox.http(name, verify=verify, id=message_id)
        declared(lambda message, tx: inbox.note(message, tx))
    async with serving(inbox) as client:
        for name, tenant, status in (
            ("tenant", "acme", 200),
            ("tenant", "other", 401),
            ("broken", "acme", 401),
        ):
            post: dict[str, Any] = {"json": {"id": tenant, "n": 1}, "headers": {"x-tenant": tenant}}
            assert (await client.post(f"/inbox/{name}", **post)).status_code == status
    assert inbox.taken() == [1]


async def test_our_own_api_takes_webhooks_by_their_signature_and_nothing_else_without_a_token(
    inbox: InboxScene,
) -> None:
    declare(inbox)
    served = create(inbox.app, settings=read_settings({}))
    async with over_asgi(served) as client:
        taken = await client.post("/inbox/shop?from=test", **signed({"id": "evt_1", "n": 1}))
        assert (taken.status_code, taken.json()["status"]) == (200, "received")
        wrong = await client.post("/inbox/shop", **signed({"id": "evt_2", "n": 2}, "wrong"))
        assert (wrong.status_code, wrong.json()["code"]) == (401, "HF192")
        assert wrong.json()["request_id"] == wrong.headers["X-Request-Id"]
        assert (await client.post("/inbox/other", json={})).status_code == 404
        assert (await client.get("/inbox/shop")).status_code == 405
        for path in ("/api/v1/streams", "/api/v1/jobs"):
            assert (await client.get(path)).status_code == 401
    await served.state.site.close()
    await inbox.app.aclose()
    assert inbox.taken() == [1]


def test_an_inbox_that_could_not_work_is_refused_when_it_is_declared(inbox: InboxScene) -> None:
    http = inbox.streams.inbox.http

    def take(message: Message[Any], tx: Any) -> None: ...

    def take_list(messages: list[Message[Any]], tx: Any) -> None: ...

    def take_text(message: str, tx: Any) -> None: ...

    with pytest.raises(InvalidOption, match="twice"):
        http("shop", verify=VERIFY)
    with pytest.raises(InvalidOption):
        http("shop", verify="secret")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        http("shop", verify=VERIFY, id=message_id, on_error="drop")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        inbox.streams.inbox("nats://a")  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        http("no/slash", verify=github_signature("s"))(take)
    for wrong in (take_list, take_text, lambda message: None):
        with pytest.raises(HandlerInvalid):
            http("shop", verify=github_signature("s"))(wrong)
    http("shop", verify=github_signature("s"))(take)
    with pytest.raises(DuplicateInbox):
        http("shop", verify=github_signature("s"))(take)
    inbox.app.close()


def test_a_signature_error_of_a_user_s_own_keeps_its_words() -> None:
    assert SignatureInvalid("the tenant is unknown").message == "the tenant is unknown"
