"""Records as commands show them: their columns and colours."""

from __future__ import annotations

from holdfast.cli.output import Column, Record

STATE_COLOURS = {
    "blocked": "magenta",
    "pending": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
}


def state_colour(record: Record) -> str | None:
    """Return the colour of a record's state."""
    return STATE_COLOURS.get(str(record.get("state")))


def to_the_second(text: str | None) -> str | None:
    """Shorten a written instant for a table."""
    return None if text is None else f"{text[:19]}Z"


def first_line(text: str | None) -> str:
    """Return what an error says before its stack."""
    return (text or "").strip().partition("\n")[0]


JOB_COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("type", lambda row: row["type"]),
    Column("state", lambda row: row["state"], state_colour),
    Column("attempt", lambda row: row["attempt"]),
    Column("created", lambda row: to_the_second(row["created_at"])),
    Column("error", lambda row: first_line(row["error"])),
)
CHAIN_COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("type", lambda row: row["type"]),
    Column("state", lambda row: row["state"], state_colour),
    Column("jobs", lambda row: row["jobs"]),
    Column("created", lambda row: to_the_second(row["created_at"])),
    Column("finished", lambda row: to_the_second(row["finished_at"])),
    Column("error", lambda row: first_line(row["error"])),
)
