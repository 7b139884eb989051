"""The records of the model, and the pictures that are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core.instants import Instant
from holdfast.core.records import JobRecord, LeaseClass, NewBlocker, NewJob, State

Picture = dict[str, tuple[object, ...]]


@dataclass
class ModelJob:
    """One job of the model."""

    new: NewJob
    created_at: Instant
    state: State
    available_at: Instant | None
    attempt: int = 0
    crashes: int = 0
    fence: int = 0
    token: str | None = None
    output: str | None = None
    error: str | None = None
    continued: bool = False
    woken: bool | None = None
    waits: dict[int, str] = field(default_factory=dict)


@dataclass
class ModelLease:
    """One lease of the model."""

    expires_at: Instant
    rules: LeaseClass
    job_ids: list[str]
    alone: bool = False


@dataclass
class ModelEdge:
    """One edge of the model."""

    edge: NewBlocker
    open: bool = True


def picture_of_model(jobs: Iterable[ModelJob]) -> Picture:
    """What must be equal to the stores' records."""
    return {
        each.new.id: (
            each.state,
            each.new.type,
            each.new.chain_id,
            each.new.chain_index,
            each.attempt,
            each.crashes,
            each.fence,
            each.available_at if each.state in ("pending", "running") else None,
            each.output,
            each.continued,
        )
        for each in jobs
    }


def picture_of(records: Iterable[JobRecord]) -> Picture:
    """The same of a store."""
    return {
        each.id: (
            each.state,
            each.type,
            each.chain_id,
            each.chain_index,
            each.attempt,
            each.crashes,
            each.fence,
            each.available_at if each.state in ("pending", "running") else None,
            each.output,
            each.continued,
        )
        for each in records
    }
