"""Mistakes in how limits are kept, planted in a process to see that they are found as what they are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias
from unittest.mock import patch

from holdfast.core.instants import Instant
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.sqlite import store as sqlite_store
from holdfast.storage.sqlite.limits import OpenPartition

Planted: TypeAlias = Literal[
    "",
    "no freshness check",
    "older turn accepted",
    "starts forgotten early",
    "costs forgotten early",
    "running costs not counted",
    "costs settled twice",
    "permit not returned",
]

_SERVED = "from judged j cross join clock where j.has_changed"
_SHARED_SERVED = "where j.place is null or j.got > 0"
_MAY_EXIST = {each: f"{each} on conflict do nothing" for each in (_SERVED, _SHARED_SERVED)}
# Old rounds stay, so that a claim whose snapshot is older than another's grant still finds and locks its partition.
_NO_FRESHNESS = {
    "where has_changed and place is not null": "where false",
    "select place from shared_state where": "select place from shared_state where false and",
    **_MAY_EXIST,
}
# A claim that cannot lock the newest round slides on to the one with which the partition was made, which holds nobody.
_OLDER_TURN = {
    "g.ctid = (select n.ctid from holdfast.gate n where n.id = a.id and n.turn > 0 order by n.turn desc limit 1)": (
        "g.id = a.id order by g.turn desc limit 1"
    ),
    **_MAY_EXIST,
}
_FORGOTTEN = {"x.at > clock.us - o.period_ms * 1000": "x.at > clock.us - o.period_ms * 500"}
# Only in claims that count costs.
_CHARGES_FORGOTTEN = {
    "c.at > clock.us - o.cost_period_ms * 1000": "c.at > clock.us - o.cost_period_ms * 500"
}
_RUNNING_NOT_COUNTED = {"o.cost_allowed - h.busy_cost": "o.cost_allowed"}
_SQLITE_CHANGES: dict[str, tuple[str, str]] = {
    "costs forgotten early": (":now - :cost_period_ms * 1000", ":now - :cost_period_ms * 500"),
    "running costs not counted": (":cost_allowed - u.busy", ":cost_allowed"),
}
_FREED = ("from freed_partition\n   where", "from freed_partition\n   where false and")
# Not in claims, but in what ends an attempt: dialect, statement, what it says, what it is to say.
_IN_OTHERS: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "costs settled twice": [
        ("postgres", "cost_settle", "coalesce(q.spent, j.cost, 1)", "coalesce(j.cost, 1)"),
        ("sqlite", "cost_settle", "coalesce(q.spent, j.cost, 1)", "coalesce(j.cost, 1)"),
    ],
    "permit not returned": [
        *(("postgres", name, *_FREED) for name in ("job_finish", "job_complete_limited")),
        ("sqlite", "limit_signal_leaving", "where q.gate is", "where false and q.gate is"),
    ],
}

_CHANGES: dict[Planted, dict[str, str]] = {
    "": {},
    "no freshness check": _NO_FRESHNESS,
    "older turn accepted": _OLDER_TURN,
    "starts forgotten early": _FORGOTTEN,
    "costs forgotten early": _CHARGES_FORGOTTEN,
    "running costs not counted": _RUNNING_NOT_COUNTED,
    "costs settled twice": {},
    "permit not returned": {},
}
# Where a claim may stop between its snapshot and its locks, as on a busy server. This is no mistake.
_BEFORE_LOCKS = {
    "as lowest_fence,": "as lowest_fence, {stop} as stop,",
    "from rule a cross join lateral (": (
        "from (select r.* from rule r where (select now from clock) is not null) a cross join lateral ("
    ),
}


@contextmanager
def planted(mistake: Planted, stop: str | None = None) -> Iterator[None]:
    """Break the claims of this process on PostgreSQL; on SQLite, which has one writer, only what is counted.

    `stop` is evaluated by each claim between its snapshot and its locks.
    """
    changes = dict(_CHANGES[mistake])
    if stop is not None:
        changes |= {old: new.replace("{stop}", stop) for old, new in _BEFORE_LOCKS.items()}
    load: Callable[[str], Mapping[str, str]] = vars(postgres_store)["dialect_statements"]

    def broken(package: str) -> Mapping[str, str]:
        texts = dict(load(package))
        for old, new in changes.items():
            assert old in texts["limit_claim_by_cost"], f"the claim does not say {old!r}"
            for name in ("limit_claim", "limit_claim_by_cost"):
                texts[name] = texts[name].replace(old, new)
        return _broken_elsewhere("postgres", mistake, texts)

    load_sqlite: Callable[[str], Mapping[str, str]] = vars(sqlite_store)["dialect_statements"]

    def broken_sqlite(package: str) -> Mapping[str, str]:
        texts = dict(load_sqlite(package))
        old, new = _SQLITE_CHANGES.get(mistake, ("", ""))
        assert old in texts["limit_cost_room"], f"the claim does not say {old!r}"
        if old:
            texts["limit_cost_room"] = texts["limit_cost_room"].replace(old, new)
        return _broken_elsewhere("sqlite", mistake, texts)

    expire = OpenPartition.expire

    def forget(partition: OpenPartition, bearing: Any, now: Instant) -> None:
        expire(partition, bearing, now)
        half = (partition.rule.period_ms or 0) * 500
        partition.spent = [each for each in partition.spent if each[0] > now - half]

    changed: Any = forget if mistake == "starts forgotten early" else expire
    postgres_store.postgres_statements.cache_clear()
    sqlite_store.sqlite_statements.cache_clear()
    with (
        patch.object(postgres_store, "dialect_statements", broken),
        patch.object(sqlite_store, "dialect_statements", broken_sqlite),
        patch.object(OpenPartition, "expire", changed),
    ):
        try:
            yield
        finally:
            postgres_store.postgres_statements.cache_clear()
            sqlite_store.sqlite_statements.cache_clear()


def _broken_elsewhere(dialect: str, mistake: Planted, texts: dict[str, str]) -> dict[str, str]:
    for kind, name, old, new in _IN_OTHERS.get(mistake, ()):
        if kind == dialect:
            assert old in texts[name], f"{name} does not say {old!r}"
            texts[name] = texts[name].replace(old, new)
    return texts
