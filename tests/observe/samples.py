"""An example of every event in the catalogue, with a canary where ids and texts of people are."""

from typing import Any

from holdfast.core.events import Event
from holdfast.extensions import rows
from holdfast.observe.logging import CATALOGUE
from holdfast.observe.metrics import MEASURED

CANARY = "canary-7f3a"

VALUES: dict[str, Any] = {
    "type": "mail",
    "worker": "w-1",
    "attempt": 2,
    "fence": 7,
    "crashes": 1,
    "state": "failed",
    "outcome": "completed",
    "cycle": "cleanup",
    "runner": "outbox",
    "purpose": "claim",
    "types": ["mail"],
    "counters": {"processed": 7, "sent": 3},
}
IDS_AND_TEXTS = {"job_id", "chain_id", "run_id", "error", "reason", "slot", "by"}

UNMEASURED = frozenset(
    {
        "job_created",
        "job_released",
        "job_parked",
        "records_unused",
        "job_unreadable",
        "on_failed_gave_up",
        "job_unblocked",
        "job_redriven",
        "slot_stuck",
        "loop_lagged",
        "type_unhandled",
        "job_missing",
        "database_unreachable",
        "database_back",
        "connections_short",
        "connections_enough",
        "worker_summary",
        "worker_stopping",
        "child_died",
        "child_not_started",
        "tick_failed",
        "runner_finished",
        "runner_skipped",
        "cycle_started",
        "cycle_skipped",
        *({each.name for each in rows("events")} - MEASURED),
    }
)
"""The events that no metric measures: of a new one, its author says so here."""


def sample(name: str, **changes: Any) -> Event:
    """Return an event with all its fields."""
    fields = {field: _value(field) for field in CATALOGUE[name].fields}
    return CATALOGUE[name](**(fields | changes))


def all_samples() -> list[Event]:
    """Return one event of each kind."""
    return [sample(name) for name in CATALOGUE]


def _value(field: str) -> Any:
    if field in IDS_AND_TEXTS:
        return f"{CANARY} {field}"
    return VALUES.get(field, 1500)
