"""One entry of the audit for what one action did to many jobs or chains.

The log is append-only and an entry is written with its change, so an action in several transactions leaves several
rows. They have its id, and are read as one entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.commands.change import Effect
from holdfast.core.duration import pluralize
from holdfast.storage.id_generator import new_id

MAX_IDS = 500
"""An entry names so many of its jobs or chains; `count` has them all."""

_NOUNS = ("job", "chain")
_STATES = "states"


class Bulk(NamedTuple):
    """An action on many: its id, the filter that found them, and whether it may come in several parts."""

    id: str
    filter: str | None = None
    in_parts: bool = True


def new_bulk(filter: str | None = None, in_parts: bool = True) -> Bulk:
    """Begin an action on many."""
    return Bulk(new_id(), filter or None, in_parts)


def fold_effects(effects: Sequence[Effect], bulk: Bulk | None) -> Sequence[Effect]:
    """Return what an action did to many as one effect; a single one, or effects on other things, stay as they are."""
    nouns = {each.target.partition(" ")[0] for each in effects}
    bulk = bulk or new_bulk(in_parts=False)
    if len(nouns) != 1 or not nouns <= set(_NOUNS) or (len(effects) == 1 and not bulk.in_parts):
        return effects
    (noun,) = nouns
    ids = [each.target.partition(" ")[2] for each in effects]
    after = {
        "bulk": bulk.id,
        "count": len(ids),
        "filter": bulk.filter,
        "ids": ids[:MAX_IDS],
        **_states_of(each.after for each in effects),
    }
    return [Effect(pluralize(len(ids), noun), _states_of(each.before for each in effects), after)]


def bulk_key(entry: Mapping[str, Any]) -> str:
    """Return what the rows of one action have in common; a row of its own has its id."""
    after = entry["after"]
    bulk = after.get("bulk") if isinstance(after, Mapping) else None
    return entry["id"] if bulk is None else f"{entry['actor']} {entry['action']} {bulk}"


def fold_entries(newer: dict[str, Any], older: Mapping[str, Any]) -> dict[str, Any]:
    """Return two rows of one action as one entry, at the time of the newer."""
    new, old = newer["after"], older["after"]
    after = {
        **new,
        "count": new["count"] + old["count"],
        "ids": [*old["ids"], *new["ids"]][:MAX_IDS],
        **_sum(old, new),
    }
    noun = newer["target"].partition(" ")[2].removesuffix("s")
    return {
        **newer,
        "target": pluralize(after["count"], noun),
        "before": _sum(older["before"] or {}, newer["before"] or {}),
        "after": after,
    }


def _states_of(values: Any) -> dict[str, Any]:
    found = [each["state"] for each in values if isinstance(each, Mapping) and "state" in each]
    return {_STATES: dict(sorted(Counter(found).items()))} if found else {}


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    total = Counter(one.get(_STATES, {}))
    total.update(other.get(_STATES, {}))
    return {_STATES: dict(sorted(total.items()))} if total else {}
