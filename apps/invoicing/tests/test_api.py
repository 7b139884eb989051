"""The endpoints, called over real sockets."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx
from apps.invoicing.tests.conftest import Login, an_invoice
from apps.invoicing.tests.test_pdf import RENDER, break_logo, renders
from tests.support.until import breath, until

from holdfast_calls import request_wait
from holdfast_testing.kit import Kit

__all__ = ["renders"]


async def test_a_pdf_is_pending_then_ready_and_can_be_downloaded(seeded: Kit, login: Login) -> None:
    client, invoice = login(0), await an_invoice()
    pending = await client.get(f"/invoices/{invoice.id}/pdf", params={"waitMs": 0})
    assert pending.status_code == 202
    assert pending.json() == {"status": "PENDING", "retryAfterMs": 1000}
    assert pending.headers["Retry-After"] == "1"

    await seeded.run_until_idle_async()
    ready = await client.get(f"/invoices/{invoice.id}/pdf", params={"waitMs": 0})
    assert ready.status_code == 200
    found = ready.json()
    assert found["status"] == "READY"
    async with httpx.AsyncClient(base_url=client.base_url) as anyone:
        file = await anyone.get(found["downloadUrl"])
        assert (file.status_code, file.headers["content-type"]) == (200, "application/pdf")
        assert file.content.startswith(b"%PDF-")
        assert f'"{invoice.number}.pdf"' in file.headers["content-disposition"]
        tampered = found["downloadUrl"].replace("expires=", "expires=9")
        assert (await anyone.get(tampered)).status_code in (403, 404)


async def test_a_request_that_waits_is_answered_when_the_pdf_is_ready(
    seeded: Kit, login: Login
) -> None:
    invoice = await an_invoice()
    waiting = asyncio.create_task(login(0).get(f"/invoices/{invoice.id}/pdf"))
    await until(lambda: seeded.started(RENDER))
    await seeded.run_until_idle_async()
    answer = await waiting
    assert (answer.status_code, answer.json()["status"]) == (200, "READY")


async def test_fifty_requests_for_one_pdf_render_it_once_and_are_all_answered(
    seeded: Kit, login: Login, renders: list[UUID]
) -> None:
    client, invoice = login(0), await an_invoice()
    waiting = [
        asyncio.create_task(client.get(f"/invoices/{invoice.id}/pdf", params={"waitMs": 30_000}))
        for _ in range(50)
    ]
    await until(lambda: seeded.started(RENDER))
    while not all(each.done() for each in waiting):
        await seeded.run_until_idle_async()
        await breath()
    answers = [each.result() for each in waiting]
    assert {each.status_code for each in answers} == {200}
    assert renders == [invoice.id]
    assert len(seeded.started(RENDER)) == 1


async def test_a_client_that_leaves_ends_its_wait(seeded: Kit, login: Login) -> None:
    invoice = await an_invoice()
    waiting = asyncio.create_task(login(0).get(f"/invoices/{invoice.id}/pdf"))
    watches = request_wait._WATCHES.setdefault(asyncio.get_running_loop(), {})
    await until(lambda: watches)
    waiting.cancel()
    await until(lambda: not watches)
    assert [each.state for each in seeded.started(RENDER)] == ["pending"]


async def test_a_failed_pdf_is_422_only_after_the_last_attempt(seeded: Kit, login: Login) -> None:
    client, invoice = login(0), await an_invoice()
    await break_logo(invoice)
    for _ in range(3):
        pending = await client.get(f"/invoices/{invoice.id}/pdf", params={"waitMs": 0})
        assert (pending.status_code, pending.json()["status"]) == (202, "PENDING")
        await seeded.run_until_idle_async()
        seeded.advance("3m")
    for wait_ms in (0, 1, 15_000):
        failed = await client.get(f"/invoices/{invoice.id}/pdf", params={"waitMs": wait_ms})
        assert failed.status_code == 422
        assert failed.json()["error"] == "INVOICE_PDF_RENDER_FAILED"


async def test_garbage_in_wait_ms_is_answered_clearly(seeded: Kit, login: Login) -> None:
    client, invoice = login(0), await an_invoice()
    for wait_ms in ("-1", "soon", "1.5", "1e3", "", " "):
        answer = await client.get(f"/invoices/{invoice.id}/pdf", params={"waitMs": wait_ms})
        assert answer.status_code == 400
        assert "waitMs" in answer.json()["detail"]
        assert "30000" in answer.json()["help"]
    assert seeded.started(RENDER) == []


async def test_a_malformed_id_is_an_invoice_that_does_not_exist(seeded: Kit, login: Login) -> None:
    client = login(0)
    for id in ("7", "INV-2031-0001", "0193a6f0-7c00-7000-8000-00000000000g"):
        answers = [
            await client.get(f"/invoices/{id}"),
            await client.get(f"/invoices/{id}/pdf"),
            await client.post(f"/invoices/{id}/send"),
        ]
        assert [each.status_code for each in answers] == [404] * 3
        assert [each.json() for each in answers] == [{"detail": "no such invoice"}] * 3


async def test_foreign_tenants_find_nothing(seeded: Kit, login: Login) -> None:
    foreign, invoice = login(1), await an_invoice(0)
    path = f"/invoices/{invoice.id}"
    answers = [
        await foreign.get(path),
        await foreign.get(f"{path}/pdf"),
        await foreign.post(f"{path}/send"),
        await foreign.post("/invoices", json=new_invoice(invoice.customer_id)),
        await foreign.get(f"/invoices/{uuid4()}"),
    ]
    assert {each.status_code for each in answers} == {404}
    listed = (await foreign.get("/invoices", params={"limit": 200})).json()
    assert str(invoice.id) not in [each["id"] for each in listed]
    assert seeded.started(RENDER) == []


async def test_without_a_known_token_there_is_nothing(address: str) -> None:
    async with httpx.AsyncClient(base_url=address) as anyone:
        assert (await anyone.get("/invoices")).status_code == 401
        answer = await anyone.get("/invoices", headers={"Authorization": "Bearer guess"})
        assert answer.status_code == 401


def new_invoice(customer_id: object) -> dict[str, Any]:
    """Return what the API takes for a small invoice."""
    line = {"description": "Consulting", "quantity": 3, "unitPrice": 12_000, "taxRate": 1900}
    return {"customerId": str(customer_id), "lines": [line]}


async def test_an_invoice_is_created_listed_and_shown(seeded: Kit, login: Login) -> None:
    client = login(0)
    customer = (await client.get("/customers")).json()[0]
    created = await client.post("/invoices", json=new_invoice(customer["id"]))
    assert created.status_code == 201
    made = created.json()
    assert (made["net"], made["tax"], made["gross"]) == (36_000, 6_840, 42_840)
    assert (made["status"], made["document"]["status"]) == ("OPEN", "PENDING")
    assert (await client.get(f"/invoices/{made['id']}")).json() == made
    listed = (await client.get("/invoices")).json()
    assert listed[0]["id"] == made["id"]
    assert len(listed) == 9


async def test_an_invoice_that_makes_no_sense_is_refused(seeded: Kit, login: Login) -> None:
    client, invoice = login(0), await an_invoice()
    line = {"description": "x", "quantity": 1, "unitPrice": 1, "taxRate": 0}
    changes: list[dict[str, Any]] = [
        {"lines": []},
        {"lines": [line | {"quantity": 0}]},
        {"lines": [line | {"unitPrice": -1}]},
        {"customerId": "nobody"},
        {"discount": 5},
    ]
    for change in changes:
        answer = await client.post("/invoices", json=new_invoice(invoice.customer_id) | change)
        assert answer.status_code == 422


async def test_an_expense_reaches_the_tax_snapshot(seeded: Kit, login: Login) -> None:
    client = login(0)
    expense = {"description": "Desk", "spentOn": "2031-05-04", "net": 40_000, "tax": 7_600}
    assert (await client.post("/expenses", json=expense)).status_code == 201
    await seeded.run_until_idle_async()
    snapshots = (await client.get("/tax-snapshots")).json()
    assert snapshots[-1] == {"quarter": "2031-Q2", "expenses": 1, "net": 40_000, "tax": 7_600}


async def test_the_dashboard_is_there(address: str) -> None:
    async with httpx.AsyncClient(base_url=address) as anyone:
        assert (await anyone.get("/holdfast/", follow_redirects=True)).status_code == 200
