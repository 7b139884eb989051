"""A service with a database of its own: it takes the orders of some lines, and a job ships each."""

from __future__ import annotations

import os
from typing import Any

from holdfast import Holdfast, Job
from holdfast_streams import JetStream, Message, add_streams

app = Holdfast()
streams = add_streams(app)

LINES = [f"ORDERS.{line}.>" for line in os.environ["SCALE_LINES"].split(",")]
ORDERS = JetStream(
    os.environ["SCALE_NATS"], stream="ORDERS", durable=os.environ["SCALE_SHOP"], filter=LINES
)


@app.job("order.ship", atomic=True)
def ship(job: Job[int]) -> None:
    """Ship an order: its row and the job's end are one commit."""
    job.tx.execute("insert into shipped (n, job_id) values (%s, %s)", (job.input, job.id))


@streams.inbox(ORDERS, name="orders", order="key")
def take(message: Message[Any], tx: Any) -> None:
    """Start a job for an order."""
    key, n = message.data["key"], message.data["n"]
    tx.execute("insert into received (key, n) values (%s, %s)", (key, n))
    app.start(tx, ship, n)
