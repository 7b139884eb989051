"""Oban for Python. Defaults: a queue of ten, as in its documentation; best: fifty, in a pool to match."""

import asyncio
import signal
from contextlib import asynccontextmanager

import kit
from oban import Oban, worker
from oban.schema import install


@worker(queue="bench")
class Noop:
    async def process(self, job):
        await kit.handle(job.args["number"])


def made(number):
    return Noop.new({"number": number, "payload": kit.PAYLOAD})


@asynccontextmanager
async def pooled():
    pool = await Oban.create_pool(kit.URL, **({"max_size": 20} if kit.BEST else {}))
    try:
        yield pool
    finally:
        await pool.close()


async def setup():
    async with pooled() as pool:
        await install(pool)


@asynccontextmanager
async def connected():
    async with pooled() as pool, Oban(pool=pool) as oban:

        async def one(number):
            await oban.enqueue(made(number))

        async def many(numbers):
            await oban.enqueue_many([made(number) for number in numbers])

        yield one, many


async def serve():
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with pooled() as pool, Oban(pool=pool, queues={"bench": kit.SLOTS if kit.BEST else 10}):
        await stopped.wait()


if __name__ == "__main__":
    kit.run(setup, connected, lambda: asyncio.run(serve()))
