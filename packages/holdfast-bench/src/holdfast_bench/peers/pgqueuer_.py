"""pgqueuer on asyncpg and uvloop, as `pgq run` runs it. Defaults: batches of 10; best: batches of 200."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import asyncpg
import kit
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

PAYLOAD = kit.json.dumps(kit.PAYLOAD).encode()


async def setup():
    connection = await asyncpg.connect(kit.URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


@asynccontextmanager
async def connected():
    connection = await asyncpg.connect(kit.URL)
    queries = Queries(AsyncpgDriver(connection))

    async def one(number):
        await queries.enqueue("noop", b"%d %s" % (number, PAYLOAD))

    async def many(numbers):
        payloads = [b"%d %s" % (number, PAYLOAD) for number in numbers]
        await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

    yield one, many
    await connection.close()


async def serve():
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(kit.URL)))
    loop = asyncio.get_running_loop()
    if kit.BEST:
        loop.set_default_executor(ThreadPoolExecutor(kit.SLOTS))

    @worker.entrypoint("noop")
    async def noop(job):
        number = int(job.payload.split(b" ", 1)[0])
        # It has no synchronous handlers, and recommends this.
        await (
            asyncio.to_thread(kit.handle_blocking, number) if kit.THREADS else kit.handle(number)
        )

    loop.add_signal_handler(signal.SIGTERM, worker.shutdown.set)
    await worker.run(**({"batch_size": 200} if kit.BEST else {}))


if __name__ == "__main__":
    kit.run(setup, connected, lambda: uvloop.run(serve()))
