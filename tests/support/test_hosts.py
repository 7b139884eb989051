"""Hosts do what their operations say, and nothing of them outlives the test, whatever way it ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.hosts import Host, Network, require_hosts
from tests.support.until import PATIENCE_S, wait_until

PORT = 7000
LISTEN = f"""
import socket
with socket.create_server(("0.0.0.0", {PORT})) as server:
    print("listening", flush=True)
    while True:
        server.accept()[0].close()
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()
    print("answered", end="")
except OSError as error:
    print(type(error).__name__, end="")
"""
LEFT_ALONE = """
import sys, time
from tests.support.hosts import Network
network = Network()
network.add("a").start(["sleep", "3600"])
print(network.home, flush=True)
time.sleep(3600)
"""


@pytest.fixture
def network() -> Iterator[Network]:
    require_hosts()
    with Network() as made:
        yield made


def reach(client: Host, server: Host) -> str:
    return client.run(sys.executable, "-I", "-c", CONNECT, server.address, str(PORT))


def serve(host: Host) -> None:
    (host.folder / "log").unlink(missing_ok=True)
    host.start([sys.executable, "-I", "-c", LISTEN])
    wait_until(lambda: "listening" in host.log_tail())


def test_a_host_is_reached_unless_it_is_cut_off_or_swallows_packets_or_has_no_power(
    network: Network,
) -> None:
    server, client = network.add("server"), network.add("client")
    serve(server)
    assert reach(client, server) == "answered"
    network.swallow(server)
    assert reach(client, server) == "TimeoutError"
    network.heal(server)
    assert reach(client, server) == "answered"
    network.cut(server)
    assert reach(client, server) in ("TimeoutError", "OSError")
    network.heal(server)
    assert reach(client, server) == "answered"
    server.power_off()
    assert reach(client, server) in ("TimeoutError", "OSError")
    server.power_on()
    assert reach(client, server) == "ConnectionRefusedError"
    serve(server)
    assert reach(client, server) == "answered"


def test_a_host_reaches_nothing_but_its_network(network: Network) -> None:
    host = network.add("a")
    routes = host.run("ip", "-4", "route")
    assert [line.split()[0] for line in routes.splitlines()] == ["10.77.0.0/24"]


def test_a_test_that_is_killed_leaves_no_process_and_no_folder() -> None:
    require_hosts()
    with subprocess.Popen(
        [sys.executable, "-c", LEFT_ALONE], stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        home = Path(test.stdout.readline().strip())
        started = psutil.Process(test.pid).children(recursive=True)
        assert len(started) >= 5
        test.kill()
    psutil.wait_procs(started, PATIENCE_S)
    assert [each for each in started if each.is_running()] == []
    wait_until(lambda: not home.exists())
