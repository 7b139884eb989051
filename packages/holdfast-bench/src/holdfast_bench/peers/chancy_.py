"""chancy. Defaults: a queue as declared without options (processes); best: the asynchronous executor, eager polling."""

import os
from contextlib import asynccontextmanager

import kit
from chancy import Chancy, Queue, job

chancy = Chancy(kit.URL)
ASYNC = "chancy.executors.asyncex.AsyncExecutor"


@job(queue="default")
async def noop_async(*, number, payload):
    await kit.handle(number)


@job(queue="default")
def noop_blocking(*, number, payload):
    kit.handle_blocking(number)


def made(number):
    function = noop_async if kit.BEST else noop_blocking
    return function.job.with_kwargs(number=number, payload=kit.PAYLOAD)


async def setup():
    best = {"executor": ASYNC, "concurrency": kit.SLOTS, "eager_polling": True}
    async with chancy:
        await chancy.migrate()
        await chancy.declare(Queue("default", **(best if kit.BEST else {})))


@asynccontextmanager
async def connected():
    async with chancy:

        async def one(number):
            await chancy.push(made(number))

        async def many(numbers):
            async for _ in chancy.push_many([made(number) for number in numbers]):
                pass

        yield one, many


def work():
    command = os.path.join(kit.SCRIPTS, "chancy")
    kit.replace(command, "--app", "chancy_.chancy", "worker", "start")


if __name__ == "__main__":
    # Its jobs are known by their module, which must not be called __main__.
    import chancy_ as adapter

    kit.run(adapter.setup, adapter.connected, adapter.work)
