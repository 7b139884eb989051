"""Hints that wait to be sent: duplicates merged, narrow ones swallowed by wider ones, never many."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.notify.port import ANY, Hint, HintKind

TYPES_LIMIT = 2_000
WORKERS_LIMIT = 200
IDS_LIMIT = 5_000

# Ids in the order in which they came; None means any.
_Ids = dict[str, None] | None


class Pending:
    """Hints in the order in which they came. Not for several threads at once."""

    __slots__ = ("_awaited", "_ended", "_lost", "_types")

    def __init__(self) -> None:
        self._types: dict[str, HintKind] = {}
        self._lost: dict[str, _Ids] = {}
        self._ended: _Ids = {}
        self._awaited: _Ids = {}

    def __bool__(self) -> bool:
        chains = (self._ended, self._awaited)
        return bool(self._types or self._lost or any(each or each is None for each in chains))

    def add(self, hints: Iterable[Hint]) -> None:
        """Merge hints into those that wait."""
        for hint in hints:
            match hint.kind:
                case "due" | "look":
                    self._add_type(hint.kind, hint.type)
                case "lost":
                    self._add_lost(hint)
                case "ended":
                    self._ended = _merged(self._ended, hint.ids)
                case "awaited":
                    self._awaited = _merged(self._awaited, hint.ids)

    def take(self) -> list[Hint]:
        """Return what waits, and begin anew."""
        hints = [Hint(kind, type) for type, kind in self._types.items()]
        hints += [
            Hint("lost", worker=worker, ids=_listed(ids)) for worker, ids in self._lost.items()
        ]
        if self._ended is None or self._ended:
            hints.append(Hint("ended", ids=_listed(self._ended)))
        if self._awaited is None or self._awaited:
            hints.append(Hint("awaited", ids=_listed(self._awaited)))
        self._types, self._lost, self._ended, self._awaited = {}, {}, {}, {}
        return hints

    def _add_type(self, kind: HintKind, type: str) -> None:
        if self._types.get(ANY) in ("look", kind):
            return
        if (kind, type) == ("look", ANY) or len(self._types) >= TYPES_LIMIT:
            self._types = {ANY: "look"}
        elif type == ANY:
            looks = {known: kept for known, kept in self._types.items() if kept == "look"}
            self._types = {ANY: kind} | looks
        elif self._types.get(type) != "look":
            self._types[type] = kind

    def _add_lost(self, hint: Hint) -> None:
        if "" in self._lost:
            return
        if hint.worker == "" or (
            hint.worker not in self._lost and len(self._lost) >= WORKERS_LIMIT
        ):
            self._lost = {"": None}
            return
        self._lost[hint.worker] = _merged(self._lost.get(hint.worker, {}), hint.ids)


def _merged(known: _Ids, ids: tuple[str, ...]) -> _Ids:
    if known is None or not ids or len(known) + len(ids) > IDS_LIMIT:
        return None
    known.update(dict.fromkeys(ids))
    return known


def _listed(ids: _Ids) -> tuple[str, ...]:
    return () if ids is None else tuple(ids)
