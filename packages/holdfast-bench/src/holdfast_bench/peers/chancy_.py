"""chancy. Defaults: a queue as declared without options (processes); best: the asynchronous executor, eager polling."""

import os
from contextlib import asynccontextmanager

import kit
from chancy import Chancy, Queue, job

chancy = Chancy(kit.URL)
ASYNC = "chancy.executors.asyncex.AsyncExecutor"
THREADED = "chancy.executors.thread.ThreadedExecutor"


@job(queue="default")
async def noop_async(*, number, payload):
    await kit.handle(number)


@job(queue="default")
def noop_blocking(*, number, payload):
    kit.handle_blocking(number)


def made(number):
    function = noop_async if kit.BEST and not kit.THREADS else noop_blocking
    given = function.job.with_kwargs(number=number, payload=kit.PAYLOAD)
    return given.with_queue("threads" if kit.THREADS else "default")


async def setup():
    best = {"concurrency": kit.SLOTS, "eager_polling": True} if kit.BEST else {}
    async with chancy:
        await chancy.migrate()
        await chancy.declare(Queue("default", **best, **({"executor": ASYNC} if kit.BEST else {})))
        await chancy.declare(Queue("threads", **best, executor=THREADED))


@asynccontextmanager
async def connected():
    async with chancy:

        async def one(number):
            await chancy.push(made(number))

        async def many(numbers):
            [_ async for _ in chancy.push_many([made(number) for number in numbers])]

        yield one, many


def work():
    kit.replace(os.path.join(kit.SCRIPTS, "chancy"), "--app", "chancy_.chancy", "worker", "start")


if __name__ == "__main__":
    # Its jobs are known by their module, which must not be called __main__.
    import chancy_ as adapter

    kit.run(adapter.setup, adapter.connected, adapter.work)
