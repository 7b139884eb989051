"""`INVOICING_RELAY`: what was issued and paid goes to a stream of NATS JetStream, each event once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import nats
from apps.invoicing.tests.conftest import run_command, running
from tests.streams.broker_servers import jetstream_server
from tests.support.until import until

STREAM = "INVOICES"


async def sent(server: str) -> list[Any]:
    """All messages of the stream, as a subscriber gets them."""
    client = await nats.connect(server)
    try:
        context = client.jetstream()
        count = (await context.stream_info(STREAM)).state.messages
        subscription = await context.subscribe(f"{STREAM}.>", ordered_consumer=True)
        return [await subscription.next_msg(timeout=10) for _ in range(count)]
    finally:
        await client.close()


async def test_what_was_issued_and_paid_goes_to_a_stream_once_though_a_worker_is_killed(
    url: str, place: Path
) -> None:
    code, _, err = await run_command(place, url, "invoicing", "seed", "--invoices", "2")
    assert code == 0, err
    with jetstream_server() as server:
        address = f"nats://127.0.0.1:{server.port}"
        more = {"INVOICING_RELAY": address, "HOLDFAST_STREAMS_TAKEOVER_MS": "1000"}
        command = ("holdfast", "worker", "invoicing.worker:jobs")

        async def lag() -> Counter[str]:
            _, out, _ = await run_command(place, url, "holdfast", "streams", "list", "-o", "json")
            return Counter({each["name"]: each["lag"] for each in json.loads(out or "[]")})

        async def is_sent() -> bool:
            found = await lag()
            return set(found) == {"add_revenue", STREAM} and not found.total()

        async with running(place, url, *command, **more) as worker:
            await until(lambda: "worker_started" in worker.log.read_text())
            await worker.kill()
        async with running(place, url, *command, **more):
            await until(is_sent)
        messages = await sent(address)
    assert {each.headers["ce-type"] for each in messages} == {"invoice.issued", "invoice.paid"}
    assert max(Counter(each.headers["ce-id"] for each in messages).values()) == 1
    assert all(
        each.headers["ce-subject"] == json.loads(each.data)["tenant_id"] for each in messages
    )


async def test_an_address_that_is_none_of_nats_is_refused_at_the_start(
    sqlite_url: str, place: Path
) -> None:
    words = ("holdfast", "worker", "invoicing.worker:jobs", "--drain")
    code, _, err = await run_command(place, sqlite_url, *words, INVOICING_RELAY="redis://here")
    assert code == 2
    assert "INVOICING_RELAY" in err
    assert "nats://" in err
