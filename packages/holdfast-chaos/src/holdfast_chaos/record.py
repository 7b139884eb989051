"""The file of campaigns: the last one of each kind of database, as the documentation shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.core.errors import CommandUsage
from holdfast_chaos.campaign import CampaignResult

FIGURES = (
    *("jobs", "faults", "lost", "lost_by_failover", "duplicates", "duplicates_explained"),
    *("fencing_violations", "refused_zombie_writes", "events", "events_lost"),
    *("events_lost_by_failover", "events_twice", "events_out_of_order", "refused_lines"),
    *("recovery_p50_s", "recovery_p99_s"),
    *("restart_p50_s", "restart_p99_s", "free_restart_p99_s", "verdict"),
)


def to_record(result: CampaignResult) -> dict[str, Any]:
    """Return what is kept of a campaign."""
    found = result.to_json()
    about = ("date", "version", "store", "seed", "seconds")
    return {name: found[name] for name in (*about, *FIGURES)}


def read_records(file: Path) -> list[dict[str, Any]]:
    """Read the campaigns of a file; none if it does not exist yet. Raises: CommandUsage."""
    if not file.exists():
        return []
    try:
        found: object = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(_is_record(each) for each in found):
        raise CommandUsage(
            f"{file} is no file of campaigns",
            help="name a new file, or one that --record has written",
        )
    return found


def _is_record(found: object) -> bool:
    return isinstance(found, dict) and isinstance(found.get("store"), str)


def add_record(file: Path, result: CampaignResult) -> None:
    """Put a campaign in the place of the last one on the same kind of database."""
    put_record(file, to_record(result))


def put_record(file: Path, made: dict[str, Any]) -> None:
    """Put a record in the place of the last one of its store."""
    others = [each for each in read_records(file) if each["store"] != made["store"]]
    records = sorted([*others, made], key=lambda each: str(each["store"]))
    file.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
