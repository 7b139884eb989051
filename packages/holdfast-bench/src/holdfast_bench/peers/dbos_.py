"""dbos. Defaults: a queue without limits; best: fifty at once in a worker, asked for every 100 ms, warnings only."""

import os
import signal
import threading
from contextlib import asynccontextmanager

import kit
from dbos import DBOS, DBOSClient, DBOSConfig

config: DBOSConfig = {"name": "bench", "system_database_url": kit.URL, "run_admin_server": False}
# Processes of the same id would take over one another's workflows when they start.
config["executor_id"] = f"bench-{os.getpid()}"
if kit.BEST:
    config["log_level"] = "WARNING"
DBOS(config=config)


step = DBOS.step(name="step")(kit.step)


async def handle(number, payload):
    await kit.handle(number)
    for each in range(kit.STEPS):
        await step(each)


def handle_blocking(number, payload):
    kit.handle_blocking(number)


noop = DBOS.workflow(name="noop")(handle_blocking if kit.THREADS else handle)


async def setup():
    DBOS.launch()
    best = {"worker_concurrency": kit.SLOTS, "polling_interval_sec": 0.1}
    await DBOS.register_queue_async("bench", **(best if kit.BEST else {}))
    DBOS.destroy()


@asynccontextmanager
async def connected():
    # Not launched, because a launched process works on the queue too.
    client = DBOSClient(system_database_url=kit.URL)

    async def one(number):
        options = {"queue_name": "bench", "workflow_name": "noop"}
        await client.enqueue_async(options, number, kit.PAYLOAD)

    yield one, None
    client.destroy()


def work():
    DBOS.launch()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    DBOS.destroy()


if __name__ == "__main__":
    kit.run(setup, connected, work)
