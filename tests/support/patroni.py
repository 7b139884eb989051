"""Three PostgreSQL servers under Patroni with the configuration that the documentation recommends, and their etcd."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg
import yaml

from holdfast_demo.local_postgres import runnable_binaries, server_identity
from tests.support.absent import skip_because_absent
from tests.support.hosts import UNPRIVILEGED_ID, Host, Network
from tests.support.installation import embedded_binaries
from tests.support.until import SLOWNESS, wait_until
from tests.support.wrong_clock import fake_time_library

PAGE = Path(__file__).parents[2] / "docs" / "run" / "high-availability.md"
SERVERS = ("a", "b", "c")
ETCD = "etcd"
START_SECONDS = 60 * SLOWNESS
FAIL_OVER_SECONDS = 90 * SLOWNESS

_IN_RECOVERY = "select pg_is_in_recovery()"
_GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=2).read().decode())"


def printed_file(name: str) -> str:
    """Return a file that the page prints."""
    _, found, rest = PAGE.read_text().partition(f"# {name}\n")
    assert found, f"the page prints no {name}"
    return rest.partition("```")[0]


def recommended_configuration() -> dict[str, Any]:
    """Return the configuration of the first server as the page prints it."""
    configuration: dict[str, Any] = yaml.safe_load(printed_file("patroni.yml"))
    return configuration


class PatroniCluster:
    """Servers a, b and c on hosts of a network, and etcd on a host of its own."""

    def __init__(self, network: Network, is_synchronous: bool = True, skew_s: int = 0) -> None:
        """Make the hosts and start everything; the clocks of b and c differ from that of a by `skew_s`."""
        etcd = shutil.which("etcd")
        if etcd is None:
            skip_because_absent("etcd is not installed", "Install the package etcd-server.")
        if find_spec("patroni") is None:
            skip_because_absent("Patroni is not installed", "Run: make setup")
        self._network = network
        self._patroni: dict[str, subprocess.Popen[bytes]] = {}
        self._password = secrets.token_urlsafe(16)
        self._is_synchronous = is_synchronous
        self._binaries = runnable_binaries(
            embedded_binaries(), server_identity(), network.home / "installation"
        )
        self.hosts = {name: network.add(name) for name in SERVERS}
        self._start_etcd(network.add(ETCD), etcd)
        for name, host in self.hosts.items():
            self._configure(host, 0 if name == SERVERS[0] else skew_s)
        self.start(SERVERS[0])
        self.wait_for_leader(START_SECONDS)
        for name in SERVERS[1:]:
            self.start(name)
        self.wait_until_whole()

    @property
    def url(self) -> str:
        """The address that names all servers, as the page shows it."""
        hosts = ",".join(f"{each.address}:5432" for each in self.hosts.values())
        return f"{self._url_at(hosts)}?target_session_attrs=read-write"

    def balance_on(self, host: Host) -> str:
        """Run HAProxy on a host as the page configures it; return the one address that leads to the primary."""
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        if program is None:
            skip_because_absent("HAProxy is not installed", "Install the package haproxy.")
        file = host.folder / "haproxy.cfg"
        file.write_text(printed_file("haproxy.cfg"))
        host.start([program, "-db", "-f", file], is_unprivileged=True)
        return self._url_at(f"{host.address}:5432")

    def _url_at(self, hosts: str) -> str:
        return f"postgresql://postgres:{self._password}@{hosts}/postgres"

    def start(self, name: str) -> None:
        """Start Patroni on a server that has power."""
        host = self.hosts[name]
        self._patroni[name] = host.start(
            [sys.executable, "-m", "patroni", host.folder / "patroni.yml"], is_unprivileged=True
        )

    def freeze(self, name: str) -> None:
        """Have Patroni itself hang on a server, so that it demotes nothing."""
        program = self._patroni[name]
        frozen = psutil.Process(program.pid).children()
        # What stands for it outside would stop with it, and keep the host from ending with a test that is killed.
        program.kill()
        for each in frozen:
            each.suspend()

    def ask(self, name: str, query: str) -> list[tuple[Any, ...]]:
        """Ask one server at its console, whatever its network is doing."""
        with psycopg.connect(
            host=str(self.hosts[name].folder),
            user="postgres",
            dbname="postgres",
            password=self._password,
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            return connection.execute(query.encode()).fetchall()

    def leader(self, *but: str) -> str | None:
        """Return the server that takes writes, if there is one beside those."""
        for name, host in self.hosts.items():
            if name not in but and host.is_on:
                with suppress(psycopg.OperationalError):
                    if self.ask(name, _IN_RECOVERY) == [(False,)]:
                        return name
        return None

    def wait_for_leader(self, seconds: float = FAIL_OVER_SECONDS, but: str = "") -> str:
        """Wait for a server that takes writes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := self.leader(but):
                return found
            # Evenly, unlike `wait_until`: how long clients take is counted from this look on.
            time.sleep(0.02)
        raise AssertionError(f"no server takes writes:\n{self._logs()}")

    def wait_until_whole(self) -> str:
        """Wait until the leader has both standbys, one of them awaited by commits if it should be."""
        return wait_until(
            self._leader_of_all,
            lambda: f"the standbys did not come back:\n{self._logs()}",
            FAIL_OVER_SECONDS,
        )

    def _leader_of_all(self) -> str | None:
        members = self._members()
        leader = next((each["name"] for each in members if each["role"] == "leader"), None)
        standbys = [each for each in members if each["name"] != leader]
        return str(leader) if leader and self._are_following(standbys) else None

    def _are_following(self, standbys: list[dict[str, Any]]) -> bool:
        """Say whether the standbys stream; one that was cut off is listed with its state of before."""
        roles = {each["role"] for each in standbys}
        expected = {"sync_standby", "replica"} if self._is_synchronous else {"replica"}
        return roles == expected and all(each["state"] == "streaming" for each in standbys)

    def _members(self) -> list[dict[str, Any]]:
        """Return the members as Patroni sees them; none while it does not answer."""
        for host in self.hosts.values():
            with suppress(subprocess.CalledProcessError):
                answer = host.run(
                    sys.executable, "-I", "-c", _GET, f"http://{host.address}:8008/cluster"
                )
                members: list[dict[str, Any]] = json.loads(answer)["members"]
                if len(members) == len(SERVERS):
                    return members
        return []

    def _start_etcd(self, host: Host, program: str) -> None:
        own = f"http://{host.address}"
        # Debian builds it for every architecture; etcd wants to be asked for those it does not test.
        supported = {"ETCD_UNSUPPORTED_ARCH": {"aarch64": "arm64"}.get(os.uname().machine, "")}
        words: list[str | Path] = [program, "--name", ETCD, "--data-dir", host.folder / "data"]
        words += ["--listen-client-urls", f"{own}:2379", "--advertise-client-urls", f"{own}:2379"]
        words += ["--listen-peer-urls", "http://127.0.0.1:2380"]
        host.start(words, env=supported, is_unprivileged=True)

    def _configure(self, host: Host, skew_s: int) -> None:
        """Write the page's configuration with what differs by server and by machine."""
        known = recommended_configuration()
        known["name"] = host.name
        for part, port in (("restapi", 8008), ("postgresql", 5432)):
            known[part] |= dict.fromkeys(("listen", "connect_address"), f"{host.address}:{port}")
        postgres = known["postgresql"]
        postgres |= {
            "data_dir": str(host.folder / "data"),
            "bin_dir": str(self._programs(host, skew_s)),
            "pgpass": str(host.folder / "pgpass"),
            "parameters": {"unix_socket_directories": str(host.folder)},
        }
        for role in postgres["authentication"].values():
            role["password"] = self._password
        known["bootstrap"]["dcs"]["synchronous_mode"] = self._is_synchronous
        file = host.folder / "patroni.yml"
        file.write_text(yaml.safe_dump(known))
        os.chown(file, UNPRIVILEGED_ID, UNPRIVILEGED_ID)

    def _programs(self, host: Host, skew_s: int) -> Path:
        """Return PostgreSQL's programs, with a clock of its own if the server has one."""
        if not skew_s:
            return self._binaries
        folder = host.folder / "bin"
        folder.mkdir()
        for program in self._binaries.iterdir():
            (folder / program.name).symlink_to(program)
        # Only the server: Patroni's own pauses fail with the library that changes the clock.
        server = folder / "postgres"
        server.unlink()
        clock = f"FAKETIME={skew_s:+d}s DONT_FAKE_MONOTONIC=1 LD_PRELOAD={fake_time_library()}"
        server.write_text(f'#!/bin/sh\nexec env {clock} {self._binaries}/postgres "$@"\n')
        server.chmod(0o755)
        return folder

    def _logs(self) -> str:
        return "\n".join(
            f"--- {name}\n{self._network.hosts[name].log_tail()}" for name in (*SERVERS, ETCD)
        )
