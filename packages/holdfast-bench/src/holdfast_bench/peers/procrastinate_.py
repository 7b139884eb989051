"""procrastinate. Defaults: its worker command, one job at once; best: fifty at once, warnings only."""

import os
from contextlib import asynccontextmanager

import kit
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=kit.URL))


async def noop_async(number, payload):
    await kit.handle(number)


def noop_blocking(number, payload):
    kit.handle_blocking(number)


noop = app.task(name="noop")(noop_blocking if kit.THREADS else noop_async)


async def setup():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


@asynccontextmanager
async def connected():
    async with app.open_async():

        async def one(number):
            await noop.defer_async(number=number, payload=kit.PAYLOAD)

        async def many(numbers):
            jobs = ({"number": number, "payload": kit.PAYLOAD} for number in numbers)
            await noop.batch_defer_async(*jobs)

        yield one, many


def work():
    command = os.path.join(kit.SCRIPTS, "procrastinate")
    quiet = ["--log-level", "warning"] if kit.BEST else []
    slots = ["--concurrency", str(kit.SLOTS)] if kit.BEST else []
    kit.replace(command, *quiet, "--app", "procrastinate_.app", "worker", *slots)


if __name__ == "__main__":
    kit.run(setup, connected, work)
