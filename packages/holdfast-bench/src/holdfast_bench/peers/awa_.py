"""awa-pg. Defaults: four workers on the queue, as in its documentation; best: fifty, asked for every 10 ms, COPY."""

import asyncio
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass

import kit
from awa import AsyncClient


@dataclass
class Noop:
    number: int
    payload: dict


async def setup():
    client = AsyncClient(kit.URL)
    await client.migrate()
    await client.install_queue_storage()
    await client.close()


@asynccontextmanager
async def connected():
    client = AsyncClient(kit.URL)

    async def one(number):
        await client.insert(Noop(number, kit.PAYLOAD), queue="bench")

    async def many(numbers):
        jobs = [Noop(number, kit.PAYLOAD) for number in numbers]
        await client.enqueue_many_copy(jobs, queue="bench")

    yield one, many
    await client.close()


async def serve():
    client = AsyncClient(kit.URL)

    @client.task(Noop, queue="bench")
    async def noop(job):
        await kit.handle(job.args.number)

    await client.start(
        [("bench", kit.SLOTS if kit.BEST else 4)], **({"poll_interval_ms": 10} if kit.BEST else {})
    )
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await client.shutdown()
    await client.close()


if __name__ == "__main__":
    kit.run(setup, connected, lambda: asyncio.run(serve()))
