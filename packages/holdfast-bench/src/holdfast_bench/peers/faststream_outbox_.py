"""faststream-outbox on asyncpg. Defaults: one worker, batches of 10; best: 40 workers, batches of 200."""

import asyncio
from contextlib import asynccontextmanager

import kit
from faststream import FastStream
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

metadata = MetaData()
table = make_outbox_table(metadata)
engine = create_async_engine(
    kit.URL.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=kit.SLOTS + 10
)
# Its log has a line or two for each message.
broker = OutboxBroker(engine, outbox_table=table, logger=None)


def given(number):
    return {"number": number, **kit.PAYLOAD}


async def setup():
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()


@asynccontextmanager
async def connected():
    async with engine.connect() as connection:

        async def one(number):
            async with connection.begin():
                await broker.publish(given(number), queue="noop", session=connection)

        async def many(numbers):
            async with connection.begin():
                bodies = [given(number) for number in numbers]
                await broker.publish_batch(*bodies, queue="noop", session=connection)

        yield one, many
    await engine.dispose()


# Each worker keeps a connection; a stock server has a hundred, and two processes are measured.
BEST = {"max_workers": 40, "fetch_batch_size": 200, "terminal_flush_batch_size": 20}


@broker.subscriber("noop", **(BEST if kit.BEST else {}))
async def noop(body: dict):
    await kit.handle(body["number"])


if __name__ == "__main__":
    kit.run(setup, connected, lambda: asyncio.run(FastStream(broker, logger=None).run()))
