"""What adapters of Python queues share; the standard library only, because each runs in its peer's environment.

An adapter is run as `python adapter.py ACTION [COUNT]`: `setup` makes the tables, `one` and `many` start numbered jobs,
`pace` starts them at 50 a second, `work` runs a worker until SIGTERM. Everything else comes from variables.
"""

import asyncio
import json
import os
import struct
import sys
import time

URL = os.environ["BENCH_URL"]
BEST = os.environ["BENCH_MODE"] == "best"
PROCESSES = int(os.environ.get("BENCH_PROCESSES", "1"))
THREADS = bool(os.environ.get("BENCH_THREADS"))
IO_SECONDS = float(os.environ.get("BENCH_IO", "0"))
STEPS = int(os.environ.get("BENCH_STEPS", "0"))
EVENTS = bool(os.environ.get("BENCH_EVENTS"))
STAMPED = bool(os.environ.get("BENCH_STAMPED"))
PAYLOAD = json.loads(os.environ["BENCH_PAYLOAD"])
SLOTS = 50
AT_ONCE = 1000
PER_SECOND = 50
SCRIPTS = os.path.dirname(sys.executable)

_stamps = os.open(os.environ["BENCH_STAMPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def stamp(number):
    """Note that the handler of this job was called."""
    os.write(_stamps, struct.pack("<qq", number, time.monotonic_ns()))


async def handle(number):
    """Be the handler of all adapters: note the call, then wait where the figure is about I/O."""
    stamp(number)
    if IO_SECONDS:
        await asyncio.sleep(IO_SECONDS)


def handle_blocking(number):
    """Be the handler where a queue runs synchronous functions."""
    stamp(number)
    if IO_SECONDS:
        time.sleep(IO_SECONDS)


async def step(number):
    """Be the step of durable functions: do nothing, and note the call where the figure is about one alone."""
    if STAMPED:
        stamp(number)
    return number


def replace(*command):
    """Become the peer's own command."""
    os.execv(command[0], command)


def run(setup, connected, work):
    """Do what the command line asks; `connected` yields how to start one job and a list of them, by number."""
    action, count = sys.argv[1], int((*sys.argv[2:], "0")[0])
    if action == "setup":
        asyncio.run(setup())
    elif action == "work":
        work()
    else:
        print(json.dumps(asyncio.run(_started(connected, action, count))))


async def _started(connected, action, count):
    async with connected() as (one, many):
        begun = time.monotonic()
        called = []
        if action == "many":
            for first in range(0, count, AT_ONCE):
                await many(range(first, min(first + AT_ONCE, count)))
        for number in range(count) if action != "many" else ():
            if action == "pace":
                await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
                called.append(time.monotonic_ns())
            await one(number)
        return {"seconds": time.monotonic() - begun, "called": called}
