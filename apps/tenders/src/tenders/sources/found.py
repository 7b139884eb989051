"""A tender as a source describes it, the protocol of sources, and how two descriptions become one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from typing import Protocol

_KIND = re.compile(r"-([A-Z][A-Z0-9])\d{2}$")


@dataclass(frozen=True, slots=True)
class FoundTender:
    """What is known of a tender; None is what a source does not say. `sources` are those that described it."""

    code: str
    sources: tuple[str, ...]
    title: str | None = None
    description: str | None = None
    buyer: str | None = None
    region: str | None = None
    category: str | None = None
    amount: int | None = None
    published_at: datetime | None = None
    closes_at: datetime | None = None

    @property
    def kind(self) -> str | None:
        """The kind of tender, which is part of its code: LE in 1057389-12-LE26."""
        found = _KIND.search(self.code)
        return found[1] if found else None

    @property
    def filled(self) -> int:
        """How many fields are known."""
        return sum(getattr(self, name) is not None for name in _OPTIONAL)


_OPTIONAL = [each.name for each in fields(FoundTender) if each.name not in ("code", "sources")]


@dataclass(slots=True)
class Findings:
    """What a source found, and what went wrong on the way: one failure does not spoil the rest."""

    tenders: list[FoundTender] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class SourceFailed(Exception):
    """A source did not answer, or not in its format."""


class TenderSource(Protocol):
    """Finds tenders. `find` lists what is there; `complete` adds what the list does not say."""

    name: str

    async def find(self, days: Sequence[date]) -> Findings:
        """Return the tenders of some days. Never raises for what the source does wrong."""

    async def complete(self, tender: FoundTender) -> FoundTender:
        """Return a tender of this source with its details. Raises: SourceFailed."""


def merge(descriptions: Iterable[FoundTender]) -> FoundTender:
    """Return one tender of one or more descriptions: the more complete one counts, the others fill its gaps."""
    best, *others = sorted(descriptions, key=lambda each: each.filled, reverse=True)
    for other in others:
        gaps = {name: getattr(other, name) for name in _OPTIONAL if getattr(best, name) is None}
        names = (*best.sources, *other.sources)
        best = replace(best, **gaps, sources=tuple(dict.fromkeys(names)))
    return replace(best, sources=tuple(sorted(best.sources)))
