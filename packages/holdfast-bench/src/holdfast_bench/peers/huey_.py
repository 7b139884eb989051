"""huey on SQLite. Defaults: its consumer, one thread; best: fifty threads, a poll each 10 ms. Jobs run at most once."""

import os
from contextlib import asynccontextmanager

import kit
from huey import SqliteHuey

huey = SqliteHuey(filename=kit.URL.removeprefix("sqlite:///"), results=not kit.BEST)


@huey.task()
def noop(number, payload):
    kit.handle_blocking(number)


async def setup():
    huey.storage.queue_size()


@asynccontextmanager
async def connected():
    async def one(number):
        noop(number, kit.PAYLOAD)

    yield one, None


def work():
    options = ["-w", str(kit.SLOTS), "-d", "0.01", "-m", "0.01", "-q"] if kit.BEST else []
    command = os.path.join(kit.SCRIPTS, "huey_consumer")
    kit.replace(command, "huey_.huey", *options)


if __name__ == "__main__":
    # Its jobs are known by their module, which must not be called __main__.
    import huey_ as adapter

    kit.run(adapter.setup, adapter.connected, adapter.work)
