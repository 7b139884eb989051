"""Hosts of a test's own, each with its network and its processes, that can be cut off and powered off.

Every host is a network and a PID namespace. The switch is one too, so nothing reaches the machine's own network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from tests.support import host_init
from tests.support.absent import skip_because_absent
from tests.support.until import SLOWNESS

PREFIX = "10.77.0."
PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "bridge")
# PostgreSQL and Patroni refuse root. This user may read what only root can: a virtual environment below root's home.
UNPRIVILEGED = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
UNPRIVILEGED_ID = 65534
COMMAND_SECONDS = 30 * SLOWNESS


def require_hosts() -> None:
    """Skip the test where hosts cannot be made."""
    missing = [each for each in PROGRAMS if shutil.which(each) is None]
    if missing:
        skip_because_absent(
            f"hosts as network namespaces: no {', '.join(missing)}",
            "On Debian or Ubuntu: apt-get install iproute2 util-linux",
        )
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], capture_output=True)
    if os.geteuid() != 0 or tried.returncode != 0:
        skip_because_absent("hosts as network namespaces need root", "Run `make failover` as root.")


@dataclass(slots=True)
class _Namespace:
    """A first process and the namespaces that live as long as it does."""

    unshare: subprocess.Popen[bytes]
    pid: int

    @classmethod
    def make(cls, *folders: Path) -> _Namespace:
        apart = ("--net", "--pid", "--mount-proc", "--fork", "--kill-child")
        unshare = subprocess.Popen(
            ["unshare", *apart, sys.executable, "-I", host_init.__file__, *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert unshare.stdout is not None
        if unshare.stdout.readline() != b"ready\n":
            raise RuntimeError("a host's first process did not start")
        (first,) = psutil.Process(unshare.pid).children()
        return cls(unshare, first.pid)

    def inside(self, words: Sequence[str | Path], folder: Path | None = None) -> list[str]:
        """Return the command that runs a command here, in a folder or in that of the test."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--pid", "--mount"]
        return [*enter, f"--wd={folder or Path.cwd()}", "--", *map(str, words)]

    def configure(self, *words: str) -> None:
        """Run a command on the network here; it counts processes as the test does."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--"]
        subprocess.run([*enter, *words], check=True, timeout=COMMAND_SECONDS)

    def end(self) -> None:
        """End every process at once, as the kernel does with a PID namespace whose first process ended."""
        self.unshare.communicate()


class Host:
    """One host: its name, its address, and the programs started on it."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.name = name
        self.address = f"{PREFIX}{number}"
        self.hardware = f"02:00:00:00:00:{number:02x}"
        self.folder = network.home / name
        self.folder.mkdir()
        os.chown(self.folder, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        self._network = network
        self._space: _Namespace | None = None
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def is_on(self) -> bool:
        """Whether the host has power."""
        return self._space is not None

    @property
    def pid(self) -> int:
        """The first process, which names the namespaces."""
        assert self._space is not None, f"{self.name} is off"
        return self._space.pid

    def power_on(self) -> None:
        """Bring the host up with its address; nothing runs on it yet."""
        self._space = _Namespace.make()
        self._network.plug_in(self)
        self._space.configure("ip", "link", "set", "lo", "up")
        self._space.configure("ip", "link", "set", "eth0", "address", self.hardware, "up")
        self._space.configure("ip", "address", "add", f"{self.address}/24", "dev", "eth0")

    def power_off(self) -> None:
        """End every process of the host at once; no peer hears a word of it."""
        if self._space is None:
            return
        self._network.unplug(self)
        self._space.end()
        self._space = None
        for each in self._programs:
            each.communicate(timeout=COMMAND_SECONDS)
        self._programs.clear()

    def start(
        self,
        words: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        is_unprivileged: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a program here; what it prints goes to the `log` of the host's folder."""
        assert self._space is not None, f"{self.name} is off"
        inner = [*(UNPRIVILEGED if is_unprivileged else ()), *words]
        with (self.folder / "log").open("ab") as log:
            program = subprocess.Popen(
                self._space.inside(inner, folder),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self.folder), **(env or {})},
                start_new_session=True,
            )
        self._programs.append(program)
        return program

    def stop(self, program: subprocess.Popen[bytes]) -> None:
        """Kill a program that `start` returned: what runs in its name on the host."""
        for each in psutil.Process(program.pid).children():
            each.kill()
        program.communicate(timeout=COMMAND_SECONDS)
        self._programs.remove(program)

    def run(self, *words: str | Path) -> str:
        """Run a command here to its end and return what it printed."""
        assert self._space is not None, f"{self.name} is off"
        command = self._space.inside(words)
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS
        )
        return done.stdout

    def configure(self, *words: str) -> None:
        """Run a command on this host's network."""
        assert self._space is not None, f"{self.name} is off"
        self._space.configure(*words)

    def log_tail(self) -> str:
        """Return the end of what the programs printed."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]


class Network:
    """A switch with hosts on it; `close`, or the end of the test by any means, removes all of it."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="holdfast-hosts-"))
        self.home.chmod(0o711)
        self._switch = _Namespace.make(self.home)
        self._switch.configure("ip", "link", "add", "switch", "type", "bridge")
        self._switch.configure("ip", "link", "set", "switch", "up")
        self.hosts: dict[str, Host] = {}

    def add(self, name: str) -> Host:
        """Add a host and give it power."""
        host = self.hosts[name] = Host(self, name, len(self.hosts) + 1)
        host.power_on()
        return host

    def plug_in(self, host: Host) -> None:
        """Connect a host that has just come up."""
        port = _port(host)
        veth = ("type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self._switch.configure("ip", "link", "add", port, *veth)
        self._switch.configure("ip", "link", "set", port, "master", "switch", "up")

    def unplug(self, host: Host) -> None:
        """Take a host's cable away: nothing that its processes send as they end reaches a peer."""
        self._switch.configure("ip", "link", "delete", _port(host))

    def cut(self, host: Host) -> None:
        """Take a host's link down: within seconds, its peers are told that there is no route to it."""
        self._switch.configure("ip", "link", "set", _port(host), "down")

    def swallow(self, host: Host) -> None:
        """Have everything from and to a host vanish: no peer hears of it, connections and packets get no answer."""
        for other in self._others(host):
            lasting = ("lladdr", host.hardware, "dev", "eth0", "nud", "permanent")
            other.configure("ip", "neighbour", "replace", host.address, *lasting)
        self._switch.configure("bridge", "link", "set", "dev", _port(host), "state", "disabled")

    def heal(self, host: Host) -> None:
        """Undo `cut` and `swallow`."""
        self._switch.configure("ip", "link", "set", _port(host), "up")
        self._switch.configure("bridge", "link", "set", "dev", _port(host), "state", "forwarding")
        for other in self._others(host):
            other.configure("ip", "neighbour", "flush", "dev", "eth0", "nud", "permanent")

    def close(self) -> None:
        """End every host, then the switch, which removes the folder."""
        for host in self.hosts.values():
            host.power_off()
        self._switch.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _others(self, host: Host) -> list[Host]:
        return [each for each in self.hosts.values() if each is not host and each.is_on]


def _port(host: Host) -> str:
    return f"port-{host.name}"
