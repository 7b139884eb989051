"""`make scale`: the same orders through one database and through four, while a node and a worker are killed.

A source publishes orders and relays them to JetStream with three replicas. Each service takes the lines that are its
own into its own database, where a job ships each order. The databases have a share of a processor each, so that they
are what limits one service, as they are in production; what four of them do together is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from holdfast import Holdfast
from holdfast_streams import JetStream, add_streams
from tests.scale.cpu_share import CpuShare, can_share
from tests.scale.shop_tables import CREATE, ORDER_BREAKS
from tests.streams.broker_servers import JetCluster
from tests.support.installation import embedded_binaries
from tests.support.process import PostgresProcess
from tests.support.until import wait_until

LINES, KEYS, SERVICES = 16, 500, 4
WARM_S = 3.0
GOAL = 3.5

SETTINGS = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}


class Service:
    """A database with its share of a processor, and the worker that takes the orders of some lines into it."""

    def __init__(
        self, stack: ExitStack, name: str, lines: list[int], nats: str, share: float
    ) -> None:
        group = CpuShare(f"holdfast-scale-{os.getpid()}-{name}", share) if share else None
        if group is not None:
            # It goes last, when its server has ended.
            stack.callback(wait_until, lambda: _is_removed(group))
        self.server = stack.enter_context(PostgresProcess(embedded_binaries(), SETTINGS))
        self._environment = os.environ | {
            "HOLDFAST_URL": self.server.url,
            "SCALE_NATS": nats,
            "SCALE_SHOP": name,
            "SCALE_LINES": ",".join(map(str, lines)),
        }
        self._run("migrate")
        with psycopg.connect(self.server.url) as connection:
            connection.execute(CREATE)
        if group is not None:
            group.hold(self.server.pid)
        self.worker: subprocess.Popen[bytes] | None = None

    def _run(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "holdfast", *words], env=self._environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        """Start its worker."""
        words = [
            sys.executable,
            "-m",
            "holdfast",
            "worker",
            "tests.scale.shop:app",
            "--log-level",
            "error",
        ]
        self.worker = subprocess.Popen(words, env=self._environment)

    def kill(self) -> None:
        """Kill its worker, as a power cut does."""
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()
            self.worker = None

    def shipped(self) -> int:
        """How many orders its jobs have shipped."""
        with psycopg.connect(self.server.url) as connection:
            row = connection.execute("select count(*) from shipped").fetchone()
        return 0 if row is None else int(row[0])

    def passed(self) -> int:
        """How many orders it has received, and shipped."""
        with psycopg.connect(self.server.url) as connection:
            row = connection.execute(
                "select (select count(*) from received) + (select count(*) from shipped)"
            ).fetchone()
        return 0 if row is None else int(row[0])

    def numbers(self) -> list[int]:
        """The orders that were shipped."""
        with psycopg.connect(self.server.url) as connection:
            return [row[0] for row in connection.execute("select n from shipped")]

    def order_breaks(self) -> int:
        """How often an order of a key was received after a later one of the same key."""
        with psycopg.connect(self.server.url) as connection:
            row = connection.execute(ORDER_BREAKS).fetchone()
        return 0 if row is None else int(row[0])


def _is_removed(group: CpuShare) -> bool:
    try:
        group.close()
    except OSError:
        return False
    return True


@contextmanager
def working(*services: Service) -> Iterator[None]:
    """Run the workers of services."""
    try:
        for each in services:
            each.start()
        yield
    finally:
        for each in services:
            each.kill()


def publish(url: str, nats: str, orders: int) -> None:
    """Publish orders in the source's database, and relay them to the stream."""
    app = Holdfast(url)
    streams = add_streams(app)
    streams.relay("order.*", to=JetStream(nats, stream="ORDERS"))
    app.migrate()
    for start in range(0, orders, 1_000):
        with app.transaction() as tx:
            for n in range(start, min(start + 1_000, orders)):
                key = f"key {n % KEYS}"
                app.publish(tx, "order.placed", {"key": key, "n": n}, key=key)
    words = [
        sys.executable,
        "-m",
        "holdfast",
        "worker",
        "tests.scale.source:app",
        "--log-level",
        "error",
    ]
    environment = os.environ | {"HOLDFAST_URL": url, "SCALE_NATS": nats}
    relaying = subprocess.Popen(words, env=environment)
    try:
        wait_until(lambda: not any(streams.lag().values()), patience_s=300)
    finally:
        relaying.terminate()
        relaying.wait()
    app.close()


def rate(services: list[Service], seconds: float) -> float:
    """Measure how many orders services take and ship in a second, together: while one is due, each is half the way."""
    time.sleep(WARM_S)
    before, began = sum(each.passed() for each in services), time.monotonic()
    time.sleep(seconds)
    after = sum(each.passed() for each in services)
    return (after - before) / 2 / (time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long each rate is measured"
    )
    parser.add_argument("--orders", type=int, default=8_000, help="how many orders there are")
    parser.add_argument("--share", type=float, default=0.05, help="processor of each database")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    share = given.share if can_share() else 0.0
    if not share:
        print(
            "control groups cannot be made here: databases share the processors, and the ratio says little"
        )
    with ExitStack() as stack:
        nodes = stack.enter_context(JetCluster())
        source = stack.enter_context(PostgresProcess(embedded_binaries(), SETTINGS))
        print(f"publishing {given.orders:,} orders, and relaying them to three nodes …", flush=True)
        publish(source.url, nodes.url, given.orders)
        lines = list(range(LINES))
        alone = Service(stack, f"alone-{secrets.token_hex(3)}", lines, nodes.url, share)
        shops = [
            Service(stack, f"shop-{number}", lines[number::SERVICES], nodes.url, share)
            for number in range(SERVICES)
        ]
        print(f"one database, {share or 'no'} processor …", flush=True)
        with working(alone):
            one = rate([alone], given.seconds)
        print(f"{SERVICES} databases; a node and a worker are killed on the way …", flush=True)
        with working(*shops):
            time.sleep(WARM_S)
            nodes.nodes[1].stop()
            shops[2].kill()
            shops[2].start()
            all_of_them = rate(shops, given.seconds)
            nodes.nodes[1].start()
            wait_until(
                lambda: sum(each.shipped() for each in shops) >= given.orders, patience_s=900
            )
        found = [n for each in shops for n in each.numbers()]
        lost, doubled = given.orders - len(set(found)), len(found) - len(set(found))
        breaks = sum(each.order_breaks() for each in shops)
    ratio = all_of_them / one
    print(
        f"one {one:,.0f} orders/s · {SERVICES} together {all_of_them:,.0f} orders/s · {ratio:.2f} times"
    )
    print(
        f"{given.orders:,} orders · {lost} lost · {doubled} shipped twice · {breaks} out of a key's order"
    )
    figures = {
        "one": one,
        "four": all_of_them,
        "ratio": ratio,
        "share": share,
        "orders": given.orders,
        "lost": lost,
        "doubled": doubled,
        "order_breaks": breaks,
    }
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return int(lost > 0 or doubled > 0 or breaks > 0 or (share > 0 and ratio < GOAL))


if __name__ == "__main__":
    sys.exit(main())
