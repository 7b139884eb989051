"""honker on SQLite. Defaults: its asynchronous iterator, a claim and an acknowledgement a job; best: batches."""

import asyncio
import os
from contextlib import asynccontextmanager

import honker
import kit

BATCH = 200
NAME = f"worker-{os.getpid()}"


def opened():
    return honker.open(kit.URL.removeprefix("sqlite:///"))


def given(number):
    return {"number": number, "payload": kit.PAYLOAD}


async def setup():
    opened().queue("bench")


@asynccontextmanager
async def connected():
    database = opened()
    queue = database.queue("bench")

    async def one(number):
        queue.enqueue(given(number))

    async def many(numbers):
        with database.transaction() as tx:
            for number in numbers:
                queue.enqueue(given(number), tx=tx)

    yield one, many


async def serve():
    database = opened()
    queue = database.queue("bench")
    if not kit.BEST:
        async for job in queue.claim(NAME):
            await kit.handle(job.payload["number"])
            job.ack()
    updates = database.update_events()
    while True:
        if jobs := queue.claim_batch(NAME, kit.SLOTS if kit.IO_SECONDS else BATCH):
            await asyncio.gather(*(kit.handle(job.payload["number"]) for job in jobs))
            queue.ack_batch([job.id for job in jobs], NAME)
        else:
            await anext(updates)


if __name__ == "__main__":
    kit.run(setup, connected, lambda: asyncio.run(serve()))
