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
    """The parameters of a page, with the patterns of types and keys as globs."""
    params = query.params()
    params["type_glob"] = _glob_or_none(query.type_like)
    params["key_glob"] = _glob_or_none(query.key_like)
    return params


def _glob_or_none(like: str | None) -> str | None:
    return None if like is None else glob_of(like)


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
