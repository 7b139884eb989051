"""The application as it is run: an API process and a worker process, with their defaults."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from apps.invoicing.tests.conftest import run_command, running
from tests.files import conftest as files
from tests.files.s3_server import S3Server
from tests.support.until import PATIENCE_S, until

from holdfast import Holdfast
from holdfast_files import open_files
from invoicing.seed import BUSINESSES

running_s3 = files.running_s3
s3 = files.s3

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@asynccontextmanager
async def application(place: Path, url: str, **more: str) -> AsyncIterator[httpx.AsyncClient]:
    """Seed a database and run the API and a worker on it; yield a client of the first business."""
    code, _, err = await run_command(place, url, "invoicing", "seed", "--invoices", "2")
    assert code == 0, err
    api = ("uvicorn", "invoicing.api:api", "--port", "0")
    worker = ("holdfast", "worker", "invoicing.worker:jobs")
    async with running(place, url, *api, **more) as serving, running(place, url, *worker, **more):
        await until(lambda: ADDRESS.search(serving.log.read_text()))
        found = ADDRESS.search(serving.log.read_text())
        assert found is not None
        headers = {"Authorization": f"Bearer {BUSINESSES[0].token}"}
        async with httpx.AsyncClient(base_url=found[0], headers=headers, timeout=60) as client:
            yield client


async def first_invoice(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return the newest invoice."""
    invoice: dict[str, Any] = (await client.get("/invoices")).json()[0]
    return invoice


async def ready_pdf(client: httpx.AsyncClient, id: str) -> bytes:
    """Wait for an invoice's PDF as a browser would, and download it."""
    async with asyncio.timeout(PATIENCE_S):
        answer = await client.get(f"/invoices/{id}/pdf")
        while answer.status_code == 202:
            answer = await client.get(f"/invoices/{id}/pdf")
    assert answer.status_code == 200, answer.text
    async with httpx.AsyncClient(base_url=client.base_url) as anyone:
        file = await anyone.get(answer.json()["downloadUrl"])
    assert file.status_code == 200
    return file.content


async def test_the_processes_make_a_pdf_send_an_e_mail_and_stop(url: str, place: Path) -> None:
    async with application(place, url) as client:
        invoice = await first_invoice(client)
        sent = await client.post(f"/invoices/{invoice['id']}/send")
        assert sent.status_code == 202
        assert (await ready_pdf(client, invoice["id"])).startswith(b"%PDF-")
        await until((place / "mail" / f"{sent.json()['id']}.eml").exists)


async def test_an_event_that_nobody_knows_ends_as_a_dead_letter_with_the_reason(
    postgres_url: str, place: Path
) -> None:
    producer = Holdfast(postgres_url, open_types=True)
    producer.migrate()
    with producer.transaction() as tx:
        (chain,) = producer.publish(tx, "invoice.shredded", {"invoice": 7})
    async with application(place, postgres_url, HOLDFAST_UNHANDLED_AFTER_MS="100"):
        await until(lambda: producer.chains.get(chain.id).state == "failed")
    (job,) = producer.dead_letters.list().items
    assert job.error == "UnhandledType: no live worker handles invoice.shredded"
    await producer.aclose()


async def test_files_in_a_bucket_are_downloaded_from_the_bucket(
    postgres_url: str, place: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.url(uuid4().hex)
    async with application(place, postgres_url, INVOICING_FILES=bucket) as client:
        invoice = await first_invoice(client)
        content = await ready_pdf(client, invoice["id"])
    (stored,) = open_files(bucket).list()
    assert stored.key.endswith(".pdf")
    assert open_files(bucket).get(stored.key) == content
