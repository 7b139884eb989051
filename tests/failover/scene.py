"""A Patroni cluster under load, and the failovers made on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

from tests.failover.checker import (
    RATE_OVER_S,
    Failover,
    Verdict,
    judge,
    read_acknowledged,
    read_handled,
)
from tests.support.hosts import Host, Network
from tests.support.patroni import PatroniCluster
from tests.support.until import PATIENCE_S, SLOWNESS, wait_until

Kind = Literal["power-off", "cut"]
STARTS_PER_S = 250
# Jobs claimed before a cut are ours to run; all of them have begun within this time.
GRACE_S = 1.0 * SLOWNESS
POLL_S = 0.05
APPLICATION = """
import asyncio, os, time
from holdfast import Holdfast, Job

app = Holdfast()
log = os.open("handled", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.job("work", lease="10s")
async def work(job: Job[None]) -> None:
    os.write(log, f"{time.time():.6f} {job.id} {job.fence} {os.environ['HOST_NAME']}\\n".encode())
    await asyncio.sleep(0.005)  # some are running whenever the primary is lost
"""
# A balancer takes every server for a primary until it has asked them, and would lead to any.
IS_PRIMARY = """
import sys, psycopg
for _ in range(6):
    with psycopg.connect(sys.argv[1], connect_timeout=2) as connection:
        assert connection.execute("select pg_is_in_recovery()").fetchone() == (False,)
"""
MIGRATE = "import sys; from holdfast import Holdfast; Holdfast(sys.argv[1]).migrate()"
EXISTING = "select id::text from holdfast.job"
UNFINISHED = "select count(*) from holdfast.queue"


class FailoverScene:
    """Producers and a worker on a host of clients; more of both beside a primary that is to be cut off."""

    def __init__(self, network: Network, cluster: PatroniCluster, url: str | None = None) -> None:
        """Clients use the URL with all servers, or this one."""
        self.network = network
        self.cluster = cluster
        self.url = url or cluster.url
        self.clients = network.add("clients")
        self.failovers: list[Failover] = []
        wait_until(self._leads_to_primary)
        self.clients.run(sys.executable, "-c", MIGRATE, self.url)

    def _leads_to_primary(self) -> bool:
        try:
            self.clients.run(sys.executable, "-c", IS_PRIMARY, self.url)
        except subprocess.CalledProcessError:
            return False
        return True

    def work_on(self, host: Host) -> subprocess.Popen[bytes]:
        """Run `holdfast worker` on a host."""
        (host.folder / "shop.py").write_text(APPLICATION)
        (host.folder / "handled").touch()
        return host.start(
            [sys.executable, "-m", "holdfast", "worker", "shop:app"],
            env={"HOLDFAST_URL": self.url, "HOST_NAME": host.name},
            folder=host.folder,
        )

    def produce_on(self, host: Host, per_second: int = STARTS_PER_S) -> subprocess.Popen[bytes]:
        """Run a producer on a host."""
        file = host.folder / "acknowledged"
        file.touch()
        module = "tests.failover.producer"
        return host.start([sys.executable, "-m", module, self.url, file, str(per_second)])

    def fail_over(self, kind: Kind) -> Failover:
        """Lose the primary's host under load, wait until clients are on the next primary, and bring the host back."""
        lost = self.cluster.wait_until_whole()
        host = self.cluster.hosts[lost]
        beside = []
        if kind == "cut":
            beside = [self.work_on(host), self.produce_on(host, STARTS_PER_S // 5)]
            self.wait_for_load(host)
        self.wait_for_load(self.clients)
        # The rate before the fault, and that of the next primary, are measured over this time.
        time.sleep(RATE_OVER_S)
        fault_at = time.time()
        self._lose(host, kind)
        self.cluster.wait_for_leader(but=lost)
        promoted_at = time.time()
        self.wait_for_load(self.clients)
        time.sleep(RATE_OVER_S)
        done = Failover(kind, lost, fault_at, promoted_at, time.time())
        self.failovers.append(done)
        for each in beside:
            host.stop(each)
        self._bring_back(host, kind)
        return done

    def _lose(self, host: Host, kind: Kind) -> None:
        if kind == "cut":
            self.network.cut(host)
        else:
            host.power_off()

    def _bring_back(self, host: Host, kind: Kind) -> None:
        if kind == "cut":
            self.network.heal(host)
        else:
            host.power_on()
            self.cluster.start(host.name)

    def wait_for_load(self, host: Host) -> None:
        """Wait until starts are acknowledged and handlers begin on a host from now on."""
        files = [host.folder / name for name in ("acknowledged", "handled")]
        sizes = [each.stat().st_size for each in files]
        wait_until(
            lambda: all(file.stat().st_size > size for file, size in zip(files, sizes, strict=True))
        )

    def doctor(self) -> dict[str, str]:
        """Return what `holdfast doctor` measures, by check."""
        words = ("-m", "holdfast", "doctor", "--url", self.cluster.url, "-o", "json")
        findings = json.loads(self.clients.run(sys.executable, *words))
        return {each["check"]: each["measured"] for each in findings}

    def finish(self, producer: subprocess.Popen[bytes]) -> Verdict:
        """Stop producing, wait until every job has ended, and judge the run. The rows it leaves keep the laws."""
        producer.communicate(timeout=PATIENCE_S)
        leader = self.cluster.wait_until_whole()
        wait_until(lambda: self.cluster.ask(leader, UNFINISHED) == [(0,)])
        self.clients.run(sys.executable, "-m", "holdfast", "verify", "--url", self.cluster.url)
        folders = [each.folder for each in self.network.hosts.values()]
        existing = {id for (id,) in self.cluster.ask(leader, EXISTING)}
        return judge(
            read_acknowledged(_files(folders, "acknowledged")),
            read_handled(_files(folders, "handled")),
            existing,
            self.failovers,
            GRACE_S,
        )


def _files(folders: list[Path], name: str) -> list[Path]:
    return [each / name for each in folders if (each / name).exists()]
