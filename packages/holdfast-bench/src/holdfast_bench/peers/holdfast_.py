"""Ours, measured as the others are. Defaults: `holdfast worker`; best: `--slots 50`. Events go to a consumer."""

import os
from contextlib import asynccontextmanager

import kit

from holdfast import Holdfast

app = Holdfast(kit.URL)


async def noop(job):
    await kit.handle(job.input["number"])
    for number in range(kit.STEPS):
        await job.step("step", kit.step, number)


def noop_blocking(job):
    kit.handle_blocking(job.input["number"])


app.job("noop")(noop_blocking if kit.THREADS else noop)
if kit.EVENTS:
    from holdfast_streams import add_streams

    @add_streams(app).consumer("noop.*", name="noop", batch=2_000, since="earliest")
    def consume(events, tx):
        for event in events:
            kit.handle_blocking(event.data["number"])


def given(number):
    return {"number": number, **kit.PAYLOAD}


async def setup():
    app.migrate()


@asynccontextmanager
async def connected():
    async with app.transaction() as tx:  # The others are connected before the clock runs.
        await tx.execute("select 1")

    async def one(number):
        async with app.transaction() as tx:
            await app.start(tx, "noop", given(number))

    async def many(numbers):
        async with app.transaction() as tx:
            if not kit.EVENTS:
                await app.start_many(tx, "noop", [given(number) for number in numbers])
            for number in numbers if kit.EVENTS else ():
                await app.publish(tx, "noop.happened", given(number), key=str(number))

    yield one, many
    await app.aclose()


def work():
    options = ["--slots", str(kit.SLOTS)] if kit.BEST else []
    options += ["--processes", str(kit.PROCESSES)] if kit.PROCESSES > 1 else []
    kit.replace(os.path.join(kit.SCRIPTS, "holdfast"), "worker", "holdfast_:app", *options)


if __name__ == "__main__":
    kit.run(setup, connected, work)
