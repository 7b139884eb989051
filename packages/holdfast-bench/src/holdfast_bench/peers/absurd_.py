"""absurd. Defaults: one task at a time; best: fifty on ten connections, asked for every 10 ms."""

import asyncio
import signal
from contextlib import asynccontextmanager

import absurdctl
import kit
import psycopg
from absurd_sdk import AsyncAbsurd

CONNECTIONS = 10


def make_client():
    client = AsyncAbsurd(kit.URL, queue_name="bench")

    @client.register_task("noop")
    async def noop(given, context):
        await kit.handle(given["number"])
        for each in range(kit.STEPS):
            await context.step(f"step{each}", lambda each=each: kit.step(each))

    return client


async def setup():
    with psycopg.connect(kit.URL, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        connection.execute("select absurd.create_queue('bench')")


@asynccontextmanager
async def connected():
    client = make_client()

    async def one(number):
        await client.spawn("noop", {"number": number, **kit.PAYLOAD})

    yield one, None
    await client.close()


async def serve():
    best = {"concurrency": kit.SLOTS // CONNECTIONS, "poll_interval": 0.01}
    clients = [make_client() for _ in range(CONNECTIONS if kit.BEST else 1)]
    stop = asyncio.get_running_loop().add_signal_handler
    stop(signal.SIGTERM, lambda: [each.stop_worker() for each in clients])
    await asyncio.gather(*(each.start_worker(**(best if kit.BEST else {})) for each in clients))


if __name__ == "__main__":
    kit.run(setup, connected, lambda: asyncio.run(serve()))
