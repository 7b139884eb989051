"""The last campaigns of `holdfast chaos`, from the file that they wrote themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require

from holdfast_chaos.record import read_records

FILE = Path(__file__).parents[2] / "why" / "campaigns.json"

PROMISES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "Atomic enqueue": ("`rolled-back-is-gone`", lambda each: "one transaction in ten rolled back"),
    "No acknowledged loss": (
        "`acknowledged-ends`",
        lambda each: f"{each['lost']} of {each['jobs']:,} jobs lost" + _by_failover(each),
    ),
    "At most one effect": (
        "`one-effect`, `no-stale-write`",
        lambda each: f"{each['fencing_violations']} violations",
    ),
    "Fencing": (
        "`fences-grow`, `no-stale-write`",
        lambda each: f"{each['refused_zombie_writes']} late writes refused",
    ),
    "Duplicates only with a cause": (
        "`starts-are-charged`",
        lambda each: f"{each['duplicates_explained']} of {each['duplicates']} explained by a fault",
    ),
    "Chains are never lost, forked or orphaned": (
        "`whole-chains`, `rows-keep-their-laws`",
        lambda each: "all chains whole" if each["verdict"] == "green" else each["verdict"],
    ),
    "Events are consumed once, in order per key": (
        "`events-arrive`, `events-once`, `events-in-order`",
        lambda each: _events(each),
    ),
    "A dead worker's jobs start again": ("`make torture`", lambda each: _recovery(each)),
}
"""What a campaign checks: the guarantee, its laws, and what to say of one campaign."""


def _by_failover(campaign: Mapping[str, Any]) -> str:
    count = campaign["lost_by_failover"]
    return f"; {count} chains with asynchronous primaries" if count else ""


def _events(campaign: Mapping[str, Any]) -> str:
    if campaign.get("events") is None:
        return "–"
    wrong = sum(campaign[f"events_{each}"] for each in ("lost", "twice", "out_of_order"))
    lost = campaign["events_lost_by_failover"]
    said = f"{wrong} of {campaign['events']:,} events lost, repeated or out of order"
    return said + (f"; {lost} lost with asynchronous primaries" if lost else "")


def _recovery(campaign: Mapping[str, Any]) -> str:
    if campaign["recovery_p50_s"] is None:
        return "no worker died while it had jobs"
    due, started = (f"p99 {campaign[f'{each}_p99_s']:.1f} s" for each in ("recovery", "restart"))
    free = f"with a free worker: p99 {campaign['free_restart_p99_s']:.1f} s"
    return (
        f"due again: median {campaign['recovery_p50_s']:.1f} s, {due}; started: {started}; {free}"
    )


def seeds() -> str:
    """Return the last seeds of the simulation. Raises: Undocumented if there are none."""
    records = [each for each in read_records(FILE) if "seeds" in each]
    require("seeds in docs/why/campaigns.json", () if records else ["none"])
    return table(
        (
            "date",
            "version",
            "seeds",
            "jobs",
            "handlers called",
            "faults",
            "writes refused",
            "failed",
        ),
        (
            (
                each["date"],
                each["version"],
                f"{each['first_seed']:,} to {each['first_seed'] + each['seeds'] - 1:,}",
                f"{each['jobs']:,}, {each['fewest_jobs']} or more each",
                f"{each['handlers']:,}",
                f"{each['faults']:,}, {each['fewest_faults']} or more each",
                f"{each['refused']:,}",
                str(each["failed"]),
            )
            for each in records
        ),
    )


def _records() -> list[dict[str, Any]]:
    """Read the campaigns. Raises: Undocumented if there is none."""
    records = [each for each in read_records(FILE) if "seeds" not in each]
    require("campaigns in docs/why/campaigns.json", () if records else ["none"])
    return records


def page() -> str:
    """Return the last campaign on each kind of database."""
    return table(
        ("database", "date", "version", "seed", "lasted", "jobs", "faults", "verdict"),
        (
            (
                each["store"],
                each["date"],
                each["version"],
                str(each["seed"]),
                f"{each['seconds']:.0f} s",
                f"{each['jobs']:,}",
                f"{sum(each['faults'].values())}: "
                + ", ".join(f"{count} {code(kind)}" for kind, count in each["faults"].items()),
                each["verdict"],
            )
            for each in _records()
        ),
    )


def promises() -> str:
    """Return what each campaign showed of each guarantee."""
    records = _records()
    return table(
        ("guarantee", "law", *(each["store"] for each in records)),
        ((name, laws, *map(say, records)) for name, (laws, say) in PROMISES.items()),
    )
