"""What the books of an application have in common: how they are opened, and what they find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Engine, create_engine

from holdfast.contrib.sqlalchemy_url import sqlalchemy_url

Kind = Literal["missing", "doubled", "wrong"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that should not be so."""

    kind: Kind
    text: str


def open_books(url: str) -> Engine:
    """Open the application's tables for reading."""
    # SQLite's five seconds are short where several processes share a busy machine.
    wait = {"timeout": 30} if url.startswith("sqlite") else {}
    return create_engine(sqlalchemy_url(url), connect_args=wait)
