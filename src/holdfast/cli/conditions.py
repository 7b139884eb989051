"""Conditions that monitors check: a figure of the queue, a comparison, a limit, as in `oldest>5m`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.duration import format_duration, milliseconds
from holdfast.core.errors import CommandUsage
from holdfast.core.nearest import nearest

if TYPE_CHECKING:
    from holdfast.ops.health import Health

_CONDITION = re.compile(r"\s*([a-z_]+)\s*(>=|<=|>|<|=)\s*(\S+)\s*", re.ASCII)
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_DURATION = "oldest"
_BOUNDED = {"due", "blocked", "stuck"}
_FIGURES: Mapping[str, Callable[[Health], int]] = {
    "oldest": lambda health: health.oldest_us // 1000,
    "due": lambda health: health.totals.due,
    "running": lambda health: health.totals.running,
    "blocked": lambda health: health.totals.blocked,
    "live": lambda health: health.totals.live,
    "stuck": lambda health: health.totals.stuck,
    "failed": lambda health: health.totals.failed,
    "dead": lambda health: health.totals.failed,  # what monitors wrote before there was one name
    "workers": lambda health: health.workers,
    "silent": lambda health: health.silent,
    "unhandled": lambda health: len(health.unhandled),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison; ages are milliseconds."""

    figure: str
    comparison: str
    limit: int

    def holds(self, health: Health) -> bool:
        """Whether it is so now."""
        return _COMPARE[self.comparison](_FIGURES[self.figure](health), self.limit)

    def told(self, health: Health) -> str:
        """Say what was compared with what."""
        value = _FIGURES[self.figure](health)
        found, limit = (self._written(each) for each in (value, self.limit))
        return f"{self.figure} is {found}, which is {self.comparison} {limit}"

    def _written(self, value: int) -> str:
        return format_duration(value) if self.figure == _DURATION else str(value)


def counted_for(conditions: Iterable[Condition]) -> int:
    """Return how far live jobs must be counted for these conditions to mean what they say."""
    from holdfast.ops.health import COUNTED

    limits = [each.limit + 1 for each in conditions if each.figure in _BOUNDED]
    return max([COUNTED, *limits])


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises: CommandUsage, InvalidDuration."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise CommandUsage(
            f"{text[:40]!r} is not a condition", help="write it like 'oldest>5m' or 'failed>=10'"
        )
    figure, comparison, limit = match.groups()
    if figure not in _FIGURES:
        near = nearest(figure, _FIGURES) or f"use one of {', '.join(_FIGURES)}"
        raise CommandUsage(f"{figure!r} is not a figure of the queue", help=near)
    if figure == _DURATION:
        return Condition(figure, comparison, milliseconds(limit))
    if not limit.isascii() or not limit.isdigit():
        raise CommandUsage(f"{limit[:20]!r} is not a whole number", help=f"write {figure}>10")
    return Condition(figure, comparison, int(limit))
