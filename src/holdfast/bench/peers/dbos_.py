"""dbos. Defaults: a queue without limits; best: fifty at once in a worker, asked for every 100 ms, warnings only."""

import signal
import threading
from contextlib import asynccontextmanager

import kit
from dbos import DBOS, DBOSConfig

config: DBOSConfig = {"name": "bench", "system_database_url": kit.URL, "run_admin_server": False}
if kit.BEST:
    config["log_level"] = "WARNING"
DBOS(config=config)


@DBOS.workflow()
async def noop(number, payload):
    await kit.handle(number)


async def setup():
    DBOS.launch()
    best = {"worker_concurrency": kit.SLOTS, "polling_interval_sec": 0.1}
    await DBOS.register_queue_async("bench", **(best if kit.BEST else {}))
    DBOS.destroy()


@asynccontextmanager
async def connected():
    DBOS.launch()

    async def one(number):
        await DBOS.enqueue_workflow_async("bench", noop, number, kit.PAYLOAD)

    yield one, None
    DBOS.destroy()


def work():
    DBOS.launch()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    DBOS.destroy()


if __name__ == "__main__":
    kit.run(setup, connected, work)
