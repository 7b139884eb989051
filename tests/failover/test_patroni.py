"""The primary's host is lost under load: nothing acknowledged is lost with it, and clients are back soon."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.failover.checker import fences_back, read_handled
from tests.failover.scene import UNFINISHED, FailoverScene, Kind
from tests.support.hosts import Network, require_hosts
from tests.support.patroni import PatroniCluster
from tests.support.until import SLOWNESS, TEST_TIMEOUT_S, wait_until

RECOVERY_S = 2.0 * SLOWNESS
PROXY_RECOVERY_S = 3.0 * SLOWNESS
TORTURE_FAILOVERS = 20
LEAST_STARTS_PER_S = 200 / SLOWNESS
# Longer than a failover takes: time alone must not make up for it.
BEHIND_S = -60
JOBS = 100
START_DUE = """
import sys
from datetime import UTC, datetime, timedelta
from holdfast import Holdfast

app = Holdfast(sys.argv[1], open_types=True)
with app.transaction() as tx:
    due = datetime.now(UTC) - timedelta(minutes=5)
    app.start_many(tx, "work", [None] * int(sys.argv[2]), at=due)
"""


@pytest.fixture
def network() -> Iterator[Network]:
    require_hosts()
    with Network() as made:
        yield made


@pytest.mark.timeout(3 * TEST_TIMEOUT_S)
@pytest.mark.parametrize("kind", ["power-off", "cut"])
def test_a_failover_loses_no_acknowledged_start_and_clients_are_back_in_two_seconds(
    network: Network, kind: Kind
) -> None:
    scene = FailoverScene(network, PatroniCluster(network))
    scene.work_on(scene.clients)
    producer = scene.produce_on(scene.clients)
    scene.fail_over(kind)
    verdict = scene.finish(producer)
    print(verdict)
    assert verdict.broken(RECOVERY_S) == []
    doctor = scene.doctor()
    assert doctor["hosts"].count("timeline 2") == len(scene.cluster.hosts)
    assert "Nothing acknowledged: commits wait for" in doctor["replication"]


@pytest.mark.timeout(3 * TEST_TIMEOUT_S)
def test_behind_haproxy_a_failover_loses_nothing_and_clients_are_back_in_three_seconds(
    network: Network,
) -> None:
    cluster = PatroniCluster(network)
    scene = FailoverScene(network, cluster, cluster.balance_on(network.add("proxy")))
    scene.work_on(scene.clients)
    producer = scene.produce_on(scene.clients)
    scene.fail_over("power-off")
    verdict = scene.finish(producer)
    print(verdict)
    assert verdict.broken(PROXY_RECOVERY_S) == []


@pytest.mark.timeout(3 * TEST_TIMEOUT_S)
def test_fences_grow_although_the_new_primary_has_lost_the_claims_and_its_clock_is_behind(
    network: Network,
) -> None:
    # Asynchronous: the old primary grants what the new one never hears of. Its Patroni hangs and demotes nothing.
    cluster = PatroniCluster(network, is_synchronous=False, skew_s=BEHIND_S)
    scene = FailoverScene(network, cluster)
    scene.clients.run(sys.executable, "-c", START_DUE, cluster.url, str(JOBS))
    lost = cluster.hosts[cluster.wait_until_whole()]
    wait_until(lambda: all(cluster.ask(each, UNFINISHED) == [(JOBS,)] for each in cluster.hosts))
    network.cut(lost)
    cluster.freeze(lost.name)
    scene.work_on(lost)
    wait_until(lambda: len(read_handled([lost.folder / "handled"])) == JOBS)
    cluster.wait_for_leader(but=lost.name)
    scene.work_on(scene.clients)
    wait_until(lambda: len(read_handled([scene.clients.folder / "handled"])) == JOBS)
    handled = read_handled(host.folder / "handled" for host in (lost, scene.clients))
    assert len({each.id for each in handled}) == JOBS
    assert fences_back(handled) == 0


@pytest.mark.lasting
@pytest.mark.timeout(TORTURE_FAILOVERS * TEST_TIMEOUT_S)
def test_twenty_failovers_lose_no_acknowledged_start(network: Network) -> None:
    scene = FailoverScene(network, PatroniCluster(network, skew_s=-10))
    scene.work_on(scene.clients)
    producer = scene.produce_on(scene.clients)
    kinds: tuple[Kind, Kind] = ("power-off", "cut")
    for number in range(TORTURE_FAILOVERS):
        print(scene.fail_over(kinds[number % 2]))
    verdict = scene.finish(producer)
    print(verdict)
    assert verdict.broken(RECOVERY_S) == []
    assert min(verdict.starts_per_s) >= LEAST_STARTS_PER_S
