"""Other queues that can be measured beside ours: which, in which version, and how each is installed.

Every peer gets an environment of its own, in a cache that outlives the run. The adapters in the folder `peers` run in
those environments, so they import nothing of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.cli.console import print_info
from holdfast.core.errors import CommandUsage, nearest
from holdfast.version import VERSION

ADAPTERS = Path(__file__).parent / "peers"
CACHE_VARIABLE = "HOLDFAST_BENCH_CACHE"
DONE = ".installed"
INSTALL_S = 900

PeerStore = Literal["postgresql", "sqlite"]
Handlers = Literal["async", "threads"]


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue. `left` counts what has not ended; `pace` is roughly what it drains a second, to size its backlog; `bulk`
    says whether it has a call that starts many jobs at once; `handlers` are the kinds of which it runs many at once;
    `python` is the oldest version it runs on, if not ours; `steps` is roughly how many it does a second, if it has any,
    and `events` how many it hands over of those that were published in transactions.
    """

    name: str
    adapter: str
    version: str
    packages: tuple[str, ...]
    left: str
    pace: int
    store: PeerStore = "postgresql"
    bulk: bool = True
    handlers: tuple[Handlers, ...] = ("async",)
    python: tuple[int, int] = (3, 11)
    steps: int = 0
    events: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether it needs no installation."""
        return not self.packages

    @property
    def is_node(self) -> bool:
        """Whether it runs under Node."""
        return self.adapter.endswith(".mjs")


BOTH: tuple[Handlers, ...] = ("async", "threads")
# Jobs that wait, and events that the consumer has not taken.
_OURS_LEFT = (
    "select (select count(*) from holdfast.queue) + (select count(*) from holdfast.log l"
    " join holdfast.log_position p on p.line = l.line where l.place > p.position)"
)
OURS = Peer(
    *("holdfast", "holdfast_.py", VERSION, (), _OURS_LEFT),
    pace=20_000,
    handlers=BOTH,
    steps=10_000,
    events=50_000,
)
OURS_SQLITE = Peer(
    *("holdfast", "holdfast_.py", VERSION, (), _OURS_LEFT.replace("holdfast.", "holdfast_")),
    pace=10_000,
    store="sqlite",
    handlers=BOTH,
    steps=2_000,
    events=20_000,
)

PEERS = (
    Peer(
        "procrastinate",
        "procrastinate_.py",
        "3.10.0",
        ("procrastinate==3.10.0", "psycopg[binary]"),
        "select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        pace=500,
        handlers=BOTH,
    ),
    Peer(
        "pgqueuer",
        "pgqueuer_.py",
        "1.6.0",
        ("pgqueuer[asyncpg]==1.6.0",),
        "select count(*) from pgqueuer",
        pace=9_000,
        handlers=BOTH,
    ),
    Peer(
        "oban",
        "oban_.py",
        "0.7.0",
        ("oban==0.7.0",),
        "select count(*) from oban_jobs where state in ('available', 'executing')",
        pace=1_900,
        python=(3, 12),
    ),
    Peer(
        "awa-pg",
        "awa_.py",
        "0.6.9",
        ("awa-pg==0.6.9",),
        # Its view of jobs joins so many tables that a stock server answers in minutes.
        "select (select count(*) from awa.ready_entries)"
        " - (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)",
        pace=7_000,
    ),
    Peer(
        "chancy",
        "chancy_.py",
        "0.26.0",
        ("chancy[cli]==0.26.0",),
        "select count(*) from chancy_jobs where state in ('pending', 'running')",
        pace=1_900,
        handlers=BOTH,
    ),
    Peer(
        "dbos",
        "dbos_.py",
        "3.3.0",
        ("dbos==3.3.0",),
        "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
        pace=300,
        bulk=False,
        handlers=BOTH,
        steps=120,
    ),
    Peer(
        "absurd",
        "absurd_.py",
        "0.5.1",
        ("absurd-sdk==0.5.1", "absurdctl==0.5.1"),
        "select count(*) from absurd.t_bench where state not in ('completed', 'failed', 'cancelled')",
        pace=500,
        bulk=False,
        steps=600,
    ),
    Peer(
        "faststream-outbox",
        "faststream_outbox_.py",
        "0.19.0",
        ("faststream-outbox[asyncpg]==0.19.0",),
        "select count(*) from outbox",
        pace=1_000,
        events=1_000,
    ),
    Peer(
        "graphile-worker",
        "graphile_worker_.mjs",
        "0.17.3",
        ("graphile-worker@0.17.3",),
        "select count(*) from graphile_worker._private_jobs",
        pace=17_000,
    ),
    Peer(
        "pg-boss",
        "pg_boss_.mjs",
        "12.30.0",
        ("pg-boss@12.30.0",),
        "select count(*) from pgboss.job where state in ('created', 'active')",
        pace=20_000,
    ),
    Peer(
        *("huey", "huey_.py", "3.5.4", ("huey==3.5.4",), "select count(*) from task"),
        pace=7_000,
        store="sqlite",
        bulk=False,
        handlers=("threads",),
    ),
    Peer(
        *("honker", "honker_.py", "0.2.5", ("honker==0.2.5",)),
        "select count(*) from _honker_live",
        pace=50_000,
        store="sqlite",
    ),
)


class PeerMissing(Exception):
    """A peer cannot be installed here; the text says why."""


def chosen_peers(names: Sequence[str]) -> tuple[Peer, ...]:
    """Return the peers of these names; `all` means all. Raises: CommandUsage."""
    known = {each.name: each for each in PEERS}
    asked = known if tuple(names) == ("all",) else names
    for name in asked:
        if name not in known:
            raise CommandUsage(
                f"--peers: {name[:40]!r} is not among {', '.join(known)}",
                help=nearest(name, known) or "see `holdfast bench --help`",
            )
    return tuple(known[name] for name in asked)


def adapter_command(peer: Peer, python: str | None = None) -> list[str]:
    """Return how its adapter is run, installing what it needs first. Raises: PeerMissing."""
    if peer.is_ours:
        return [sys.executable, str(ADAPTERS / peer.adapter)]
    return _node_command(peer) if peer.is_node else _python_command(peer, python)


def _python_command(peer: Peer, given: str | None) -> list[str]:
    python, version = _interpreter(peer, given)
    home = _cache() / f"{peer.name}-{peer.version}-{version}"
    with _installed_once(home) as is_new:
        if is_new:
            _run([python, "-m", "venv", str(home)])
            _run([str(home / "bin" / "python"), "-m", "pip", "install", "-q", *peer.packages])
    return [str(home / "bin" / "python"), str(ADAPTERS / peer.adapter)]


def _interpreter(peer: Peer, given: str | None) -> tuple[str, str]:
    """Return an interpreter that is new enough, and its version: ours, the given one, or one that is installed."""
    if sys.version_info[:2] >= peer.python:
        return sys.executable, f"{sys.version_info[0]}.{sys.version_info[1]}"
    for each in [given] if given else _other_interpreters():
        version = _version_of(each)
        if version >= peer.python:
            return each, f"{version[0]}.{version[1]}"
    needed = f"{peer.python[0]}.{peer.python[1]}"
    raise PeerMissing(f"needs Python {needed} or newer; pass one with --peer-python PATH")


def _other_interpreters() -> Iterator[str]:
    for minor in range(14, 11, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield found
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        yield from map(str, pyenv.glob(f"versions/3.{minor}.*/bin/python"))


def _version_of(python: str) -> tuple[int, int]:
    """Return an interpreter's version; 0.0 when it does not run, as a shim of a version that is not chosen."""
    question = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
        major, minor = answer.stdout.split()
    except (OSError, ValueError):
        return 0, 0
    return int(major), int(minor)


def _node_command(peer: Peer) -> list[str]:
    node, npm = _node("node"), _node("npm")
    home = _cache() / f"{peer.name}-{peer.version}"
    with _installed_once(home) as is_new:
        if is_new:
            (home / "package.json").write_text("{}")
            options = ["--no-audit", "--no-fund", "--prefix", str(home)]
            _run([npm, "install", *options, *peer.packages])
    # Node looks for packages beside the file that imports them.
    for name in ("kit.mjs", peer.adapter):
        shutil.copy(ADAPTERS / name, home / name)
    return [node, str(home / peer.adapter)]


def _node(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise PeerMissing(f"{program} is not installed; install Node.js")
    return found


def _cache() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "holdfast-bench"


@contextmanager
def _installed_once(home: Path) -> Iterator[bool]:
    """Yield whether an environment is to be made, in an empty folder; it counts when the block has ended well."""
    is_new = not (home / DONE).exists()
    if is_new:
        print_info(f"installing {home.name} into {home}")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
    yield is_new
    (home / DONE).touch()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(f"installing took more than {INSTALL_S} s") from error
    if done.returncode:
        raise PeerMissing(reason(done.stderr))


def reason(said: str) -> str:
    """Say in one line what was wrong, from what an installer wrote."""
    if needed := re.findall(r"Requires-Python ([<>=!~0-9.,]+)", said):
        return f"needs Python {needed[-1]}"
    if absent := re.findall(r"No matching distribution found for (\S+)", said):
        return f"the package index has no {absent[-1]} that can be installed on this system"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "npm error"))]
    return (errors or lines or ["the installer failed"])[-1][:200]
