"""Other queues, measured beside ours in one run: which, in which version, and how their progress is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast import __version__

Store = Literal["postgresql", "sqlite"]


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue. `left` counts what has not ended; `pace` is roughly what it drains a second, to size its backlog; `bulk`
    says whether it has a call that starts many jobs at once.
    """

    name: str
    adapter: str
    version: str
    packages: tuple[str, ...]
    left: str
    pace: int
    store: Store = "postgresql"
    bulk: bool = True

    @property
    def is_ours(self) -> bool:
        """Whether it needs no installation."""
        return not self.packages

    @property
    def is_node(self) -> bool:
        """Whether it runs under Node."""
        return self.adapter.endswith(".mjs")


OURS = Peer(
    "holdfast", "holdfast_.py", __version__, (), "select count(*) from holdfast.queue", pace=20_000
)
OURS_SQLITE = Peer(
    *("holdfast", "holdfast_.py", __version__, (), "select count(*) from holdfast_queue"),
    pace=10_000,
    store="sqlite",
)

PEERS = (
    Peer(
        "procrastinate",
        "procrastinate_.py",
        "3.10.0",
        ("procrastinate==3.10.0", "psycopg[binary]"),
        "select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        pace=500,
    ),
    Peer(
        "pgqueuer",
        "pgqueuer_.py",
        "1.6.0",
        ("pgqueuer[asyncpg]==1.6.0",),
        "select count(*) from pgqueuer",
        pace=9_000,
    ),
    Peer(
        "oban",
        "oban_.py",
        "0.7.0",
        ("oban==0.7.0",),
        "select count(*) from oban_jobs where state in ('available', 'executing')",
        pace=1_900,
    ),
    Peer(
        "awa-pg",
        "awa_.py",
        "0.6.9",
        ("awa-pg==0.6.9",),
        "select count(*) from awa.jobs where state in ('available', 'running')",
        pace=7_000,
    ),
    Peer(
        "chancy",
        "chancy_.py",
        "0.26.0",
        ("chancy[cli]==0.26.0",),
        "select count(*) from chancy_jobs where state in ('pending', 'running')",
        pace=1_900,
    ),
    Peer(
        "dbos",
        "dbos_.py",
        "3.3.0",
        ("dbos==3.3.0",),
        "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
        pace=300,
        bulk=False,
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
    ),
    Peer(
        *("honker", "honker_.py", "0.2.5", ("honker==0.2.5",)),
        "select count(*) from _honker_live",
        pace=50_000,
        store="sqlite",
    ),
)
