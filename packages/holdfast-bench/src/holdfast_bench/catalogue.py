"""Every figure by name: which module measures it, what it needs, and the groups that --only takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

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
    ("jinja2", "starlette", "uvicorn", "holdfast_archive"),
    'pip install "holdfast-jobs[web,archive]"',
)
CHECKOUT = "run `make bench` in a checkout of Holdfast's repository"
INVOICING = NeededPackages(
    "the invoicing application", ("invoicing", "aiosmtpd", "typst"), CHECKOUT
)
TENDERS = NeededPackages("the tenders application", ("tenders", "alembic", "pyarrow"), CHECKOUT)
ARCHIVE = NeededPackages(
    "the archive", ("holdfast_archive", "pyarrow"), 'pip install "holdfast-jobs[archive]"'
)


@dataclass(frozen=True, slots=True)
class FigureFamily:
    """Figures that are measured together. Their module is imported then, because it may need what is not installed."""

    measured_by: str
    figures: tuple[str, ...]
    needs_server: bool = True
    needs: NeededPackages | None = None

    def load(self) -> Callable[[Bench], list[Result]]:
        """Import what measures them."""
        module, _, function = self.measured_by.partition(":")
        measure: Callable[[Bench], list[Result]] = getattr(
            import_module(f"holdfast_bench.{module}"), function
        )
        return measure


CONDITIONS = (
    *("drain_held_snapshot", "drain_after_finished", "drain_unhandled_backlog", "drain_in_flight"),
)
FAMILIES = (
    FigureFamily("drains:measure_noop", ("drain", *CONDITIONS)),
    FigureFamily("drains:measure_two_processes", ("drain_two_processes",)),
    FigureFamily("drains:measure_io", ("drain_io",)),
    FigureFamily("drains:measure_standby", ("drain_no_standby", "drain_standby")),
    FigureFamily("latency:measure_latency", ("latency_p50", "latency_p99")),
    FigureFamily("starts:measure_starts", ("start_one", "start_many")),
    FigureFamily("drains:measure_many_types", ("drain_20_types", "drain_200_types")),
    FigureFamily("drains:measure_keys", ("flow_2000_keys", "flow_100k_keys")),
    FigureFamily("costs:measure_keys_memory", ("flow_memory",)),
    FigureFamily("costs:measure_log", ("log_per_job",)),
    FigureFamily("costs:measure_idle", ("idle_cpu", "idle_server")),
    FigureFamily(
        "steady_load:measure_steady_load", ("dead_rows", "dead_rows_size", "dead_rows_claim")
    ),
    FigureFamily(
        "sqlite_figures:measure_sqlite",
        ("sqlite_drain", "sqlite_drain_normal", "sqlite_start_many"),
        needs_server=False,
    ),
    FigureFamily("drains:measure_batch", ("drain_batch",)),
    FigureFamily("costs:measure_wal", ("wal_per_job",)),
    FigureFamily("costs:measure_chain_step", ("chain_step",)),
    FigureFamily("costs:measure_fan", ("fan_out_in",)),
    FigureFamily("costs:measure_memory", ("memory",)),
    FigureFamily("retention_figures:measure_retention", ("retention", "drain_with_retention")),
    FigureFamily("archive_figures:measure_archive", ("archive",), needs=ARCHIVE),
    FigureFamily("page_times:measure_pages", ("pages",), needs=WEB),
    FigureFamily(
        "page_times:measure_sqlite_pages", ("pages_sqlite",), needs_server=False, needs=WEB
    ),
    FigureFamily("page_times:measure_open_dashboards", ("drain_with_dashboards",), needs=WEB),
    FigureFamily("applications:measure_invoices", ("invoices",), needs=INVOICING),
    FigureFamily("applications:measure_matching", ("matching",), needs=TENDERS),
    FigureFamily("startup:measure_startup", ("import_holdfast", "cli_help"), needs_server=False),
)

NAMES = tuple(name for family in FAMILIES for name in family.figures)
WITH_SERVER = frozenset(
    name for family in FAMILIES if family.needs_server for name in family.figures
)

GROUPS: dict[str, tuple[str, ...]] = {
    "worker": (
        *("drain", "drain_two_processes", "drain_io", "latency_p50", "latency_p99"),
        *("drain_20_types", "drain_200_types", "log_per_job", "idle_cpu", "idle_server"),
    ),
    "standby": ("drain_no_standby", "drain_standby"),
    "start": ("start_one", "start_many"),
    "flow": ("flow_2000_keys", "flow_100k_keys", "flow_memory"),
    "conditions": CONDITIONS,
    "steady": ("dead_rows", "dead_rows_size", "dead_rows_claim"),
    "sqlite": ("sqlite_drain", "sqlite_drain_normal", "sqlite_start_many"),
    "costs": (
        *("drain_batch", "wal_per_job", "chain_step", "fan_out_in", "memory", "archive"),
        *("retention", "drain_with_retention"),
        *("import_holdfast", "cli_help"),
    ),
    "dashboard": ("pages", "pages_sqlite", "drain_with_dashboards"),
    "application": ("invoices", "matching"),
}
"""Names for several figures at once."""
