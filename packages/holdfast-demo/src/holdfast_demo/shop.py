"""The shop's application. The demo's worker runs `holdfast_demo.shop:app`."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from typing import Any

from holdfast import Continue, Holdfast, Job, Retry
from holdfast_demo import tables

DEFAULT_URL = "sqlite:///holdfast-demo.db"
CHARGE = "order.charge"
RECONCILE_EVERY = "15s"
URL_VARIABLE = "SHOP_URL"
PAYMENT_VARIABLE = "SHOP_PAYMENT_MS"

url = os.environ.get(URL_VARIABLE, DEFAULT_URL)
payment_ms = int(os.environ.get(PAYMENT_VARIABLE, "120"))
app = Holdfast(url, schema=tables.SCHEMA)
soon = Retry(max_attempts=5, base="500ms", cap="5s", jitter="250ms")


@dataclass
class Order:
    """The input of the shop's jobs."""

    id: int
    amount: int


class GatewayDown(Exception):
    """The payment gateway is unreachable; a retry may help."""


@app.on("order.placed", retry=soon)
def mail_receipt(job: Job[Order]) -> None:
    """Mail the receipt: at least once, so the job's id is the provider's idempotency key."""
    with app.transaction() as tx:
        tx.execute(_sql("mail"), _values(job, key=str(job.id)))


@app.job("stock.reserve", retry=soon, atomic=True)
def reserve(job: Job[Order]) -> None:
    """Take the goods from the shelf, in one transaction with the job's completion."""
    job.tx.execute(_sql("reserve"), _values(job))


@app.job(CHARGE, retry=soon)
async def charge(job: Job[Order]) -> Continue:
    """Charge the card: no transaction is open while the gateway works, and the payment counts only under the lease."""
    async with job.prepare() as tx:
        await tx.execute(_sql("begin_payment"), _values(job, attempt=job.attempt))
        row = await (await tx.execute(_sql("gateway_is_down"))).fetchone()
    if row[0]:
        raise GatewayDown("the payment gateway is down")
    await asyncio.sleep(payment_ms / 1000 * random.uniform(0.5, 1.5))
    async with job.complete() as done:
        paid = _values(job, amount=job.input.amount, attempt=job.attempt, worker=job.worker)
        await done.tx.execute(_sql("pay"), paid)
        return done.continue_with("order.ship", job.input)


@app.job("order.ship", retry=soon, atomic=True, entry=False)
def ship(job: Job[Order]) -> None:
    """Hand the parcel over, in one transaction with the job's completion."""
    job.tx.execute(_sql("ship"), _values(job))


@app.cycle("reconcile", every=RECONCILE_EVERY)
def reconcile(run: Any) -> dict[str, int]:
    """Compare orders with payments, one replica at a time; the numbers are kept with the run."""
    with tables.connect(url) as connection:
        row = tables.execute(connection, "ledger", since=0.0)
    assert row is not None
    return {"processed": row[0], "paid_twice": row[2], "unpaid": row[3]}


def place_order(connection: tables.Connection, item: str, amount: int, heavy: bool) -> int:
    """Place an order: its row, its event and its chain are one transaction of the shop's own connection.

    A heavy one is charged only when its goods were reserved: its chain waits for another one.
    """
    with tables.transaction(connection):
        row = tables.execute(connection, "place", item=item, amount=amount, at=time.time())
        assert row is not None
        order = Order(row[0], amount)
        app.publish(connection, "order.placed", order)
        first = [app.start(connection, reserve, order)] if heavy else []
        app.start(connection, charge, order, key=f"order:{order.id}", blockers=first)
    return order.id


def _sql(name: str) -> str:
    return tables.statement(name, app.database.store.dialect)


def _values(job: Job[Order], **more: Any) -> dict[str, Any]:
    return {"order": job.input.id, "at": time.time(), **more}
