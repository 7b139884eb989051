"""Rows and parameters whose shape differs from PostgreSQL's: SQLite has no booleans and no case-sensitive LIKE."""

from __future__ import annotations

from holdfast.core.model import BlockerRecord, JobRecord
from holdfast.storage.query import JobQuery
from holdfast.storage.statement import Row, Value

_CONTINUED = JobRecord.__struct_fields__.index("continued")
_OPEN = BlockerRecord.__struct_fields__.index("open")
_GLOB_SPECIAL = "*?["


def job_record(row: Row) -> JobRecord:
    """Read a job."""
    values = list(row)
    values[_CONTINUED] = bool(row[_CONTINUED])
    return JobRecord(*values)


def blocker_record(row: Row) -> BlockerRecord:
    """Read an edge."""
    values = list(row)
    values[_OPEN] = bool(row[_OPEN])
    return BlockerRecord(*values)


def page_params(query: JobQuery) -> dict[str, Value]:
    """The parameters of a page, with the pattern of types as a glob."""
    params = query.params()
    params["type_glob"] = None if query.type_like is None else glob_of(query.type_like)
    return params


def glob_of(like: str) -> str:
    """Write a LIKE pattern, whose escape is the backslash, as the glob that matches the same texts."""
    glob = []
    characters = iter(like)
    for each in characters:
        if each == "%":
            glob.append("*")
        elif each == "_":
            glob.append("?")
        else:
            literal = next(characters, each) if each == "\\" else each
            glob.append(f"[{literal}]" if literal in _GLOB_SPECIAL else literal)
    return "".join(glob)
