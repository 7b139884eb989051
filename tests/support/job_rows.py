"""Rows of jobs by their numbers, as they are stored, for `Tables.plant`."""

from __future__ import annotations

from typing import Any

from tests.support.tables import Row, id_of

NOW = 1_800_000_000_000_000
SECOND = 1_000_000


def job(number: int, **values: Any) -> Row:
    """A job that is the only one of its chain."""
    id = id_of(number)
    usual = {
        "id": id, "chain_id": id, "chain_index": 0, "type": "part", "input": "null", "priority": 0, "blockers": 0,
        "created_at": NOW,
    }  # fmt: skip
    return usual | values


def live(number: int, token: int | None = None, **values: Any) -> Row:
    """Its row in the queue, under the token of a number."""
    usual = {
        "job_id": id_of(number), "type": "part", "priority": 0, "available_at": NOW,
        "token": None if token is None else id_of(token),
    }  # fmt: skip
    return usual | values


def ended(number: int, state: str = "completed", **values: Any) -> Row:
    """Its outcome."""
    usual = {
        "job_id": id_of(number), "type": "part", "state": state, "attempts": 1, "crashes": 0, "fence": 0,
        "finished_at": NOW,
    }  # fmt: skip
    return usual | values


def attempt(number: int, fence: int = 0, **values: Any) -> Row:
    """An attempt of it that has ended."""
    usual = {"job_id": id_of(number), "fence": fence, "attempt": 1, "kind": "fail", "ended_at": NOW}
    return usual | values


def step(number: int, name: str = "step", **values: Any) -> Row:
    """A step of it that is done."""
    usual = {
        "job_id": id_of(number), "name": name, "key": "", "nth": 1, "position": 1, "kind": "step", "state": "done",
        "undo": False, "fence": 0,
    }  # fmt: skip
    return usual | values


def waits(number: int, chain: int, **values: Any) -> Row:
    """That it waits for a chain, however this ends."""
    usual = {
        "job_id": id_of(number), "position": chain, "chain_id": id_of(chain), "on_failure": "run", "open": True,
    }  # fmt: skip
    return usual | values


def lease(number: int, **values: Any) -> Row:
    """The lease of a token."""
    usual = {
        "token": id_of(number), "worker": "worker", "claimed_at": NOW, "expires_at": NOW + SECOND, "lease_ms": 1_000,
        "max_attempts": 5, "backoff_base_ms": 1, "backoff_cap_ms": 1, "job_ids": "[]",
    }  # fmt: skip
    return usual | values
