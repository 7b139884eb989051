"""Nodes of a broker, and a relay, that a network cuts off: hosts of their own, so it needs root and Linux."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_streams.reader_store import EARLIEST, READERS
from tests.streams.broker_servers import nats_program
from tests.streams.relay_scene import order_breaks
from tests.streams.scene import Scene
from tests.support.hosts import Host, Network, require_hosts
from tests.support.until import TEST_TIMEOUT_S, until

pytestmark = [pytest.mark.lasting, pytest.mark.timeout(4 * TEST_TIMEOUT_S)]

APPLICATION = """
import os

from holdfast import Holdfast
from holdfast_streams import JetStream, add_streams

app = Holdfast()
to = JetStream(os.environ["TO"], stream="ORDERS")
add_streams(app).relay("order.*", to=to, name="feed", since="earliest", batch=20)
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def network() -> Iterator[Network]:
    require_hosts()
    with Network() as network:
        yield network


def start_nodes(network: Network) -> tuple[list[Host], str]:
    """Start three nodes of NATS, each on a host; return the hosts and the servers' addresses."""
    nodes = [network.add(name) for name in ("a", "b", "c")]
    routes = ",".join(f"nats://{each.address}:6222" for each in nodes)
    for each in nodes:
        listen = ("--addr", each.address, "--port", "4222", "-js", "-sd", each.folder)
        cluster = ("--cluster", f"nats://{each.address}:6222", "--routes", routes)
        named = ("--name", each.name, "--cluster_name", "c")
        each.start([nats_program(), *listen, *named, *cluster], folder=each.folder)
    return nodes, ",".join(f"nats://{each.address}:4222" for each in nodes)


def read(shop: Host, url: str) -> list[tuple[str, int]]:
    """Read the stream from a host of the network."""
    words = (sys.executable, "-c", READ, str(ROOT), url)
    return [(str(key), int(n)) for key, n in json.loads(shop.run(*words))]


READ = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
sys.argv += ["ORDERS"]
runpy.run_module("tests.streams.read_numbers", run_name="__main__")
"""


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fault", ["cut", "swallow"])
async def test_nodes_and_the_relay_are_cut_off_in_turn_and_each_event_is_in_the_stream_once(
    scene: Scene, network: Network, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "feed.py").write_text(APPLICATION)
    scene.app.database.run(READERS.register("feed", "relay", ["order.*"], EARLIEST))
    nodes, servers = start_nodes(network)
    shop = network.add("shop")
    words = [sys.executable, "-m", "holdfast", "worker", "feed:app"]
    told = {"HOLDFAST_URL": scene.url, "TO": servers, "HOLDFAST_STREAMS_TAKEOVER_MS": "2000"}
    shop.start(words, told, tmp_path)
    total = 0

    def publish(count: int) -> None:
        nonlocal total
        for n in range(total, total + count):
            with scene.app.transaction() as tx:
                scene.app.publish(tx, "order.paid", {"n": n}, key=f"k{n % 10}")
        total += count

    def lag() -> int:
        return sum(each.lag for each in scene.lines("feed"))

    publish(50)
    await until(lambda: lag() == 0)
    for node in nodes:
        getattr(network, fault)(node)
        publish(50)
        # Two of three go on by themselves, whichever of them led.
        await until(lambda: lag() == 0)
        network.heal(node)
    getattr(network, fault)(shop)
    publish(50)
    await until(lambda: any(each.blocked == "away" for each in scene.lines("feed")))
    assert lag() > 0
    network.heal(shop)
    await until(lambda: lag() == 0)
    found = await asyncio.to_thread(read, shop, servers)
    assert sorted(n for _, n in found) == list(range(total))
    assert order_breaks(found) == 0
    scene.app.close()
