"""What is emitted, as it is stored: batches of items, numbered along their chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import document, fetch, texts

READ_ROWS = 200
"""Batches that are read at once."""


class NewBatch(msgspec.Struct, frozen=True):
    """Items of one attempt, and of one step if there is any, with the token that proves them."""

    chain_id: str
    job_id: str
    token: str
    first: int
    last: int
    epoch: int
    step: str | None
    data: str


class BatchRecord(msgspec.Struct, frozen=True):
    """A batch as it was read."""

    chain_id: str
    last: int
    first: int
    job_id: str
    epoch: int
    data: str


class OutputTail(msgspec.Struct, frozen=True):
    """The last number along a chain, and the newest epoch of a job, 0 without one."""

    last: int
    epoch: int


class SaidByStep(msgspec.Struct, frozen=True):
    """How many items and bytes of an epoch a step has said, or the function between its steps."""

    step: str | None
    items: int
    bytes: int


class HeldJob(msgspec.Struct, frozen=True):
    """The job of an attempt, its chain, and the token that proves the attempt."""

    chain: str
    job: str
    token: str


def append(batches: Sequence[NewBatch], now: Instant | None = None) -> Op[set[tuple[str, int]]]:
    """Append batches; return chain and last number of those that are written. One statement."""
    rows = yield Statement("output_append", {"rows": document(batches), "now": now})
    return {(row[0], row[1]) for row in rows}


def read_tail(held: HeldJob) -> Op[OutputTail]:
    """Read where a chain's output ends. One statement."""
    (found,) = yield from fetch(OutputTail, "output_tail", chain=held.chain, job=held.job)
    return found


def read_said(held: HeldJob, epoch: int) -> Op[list[SaidByStep]]:
    """Read how much an epoch has, by step. One statement."""
    return fetch(SaidByStep, "output_said", chain=held.chain, job=held.job, epoch=epoch)


def trim(held: HeldJob, epoch: int) -> Op[None]:
    """Remove the epochs of a job before the one that came before this. One statement."""
    yield Statement("output_trim", _params(held, epoch))


def void_step(held: HeldJob, epoch: int, step: str, last: int) -> Op[None]:
    """Begin the next epoch with all that this one has but what a step said; `last` is the chain's last number."""
    given = _params(held, epoch)
    yield Statement("output_void", {**given, "step": step})
    yield Statement("output_carry", {**given, "shift": last})


def _params(held: HeldJob, epoch: int) -> dict[str, Value]:
    return {"chain": held.chain, "job": held.job, "token": held.token, "epoch": epoch}


def read_epochs(chains: Sequence[str]) -> Op[Mapping[str, int]]:
    """Read the newest epoch of each job of chains. One statement."""
    return dict((yield Statement("output_epochs", {"chains": texts(chains)})))


def read_recent(held: HeldJob, limit: int, bytes: int) -> Op[list[BatchRecord]]:
    """Read the last batches of a job's newest epoch, newest first. One statement."""
    given = {"chain": held.chain, "job": held.job}
    return fetch(BatchRecord, "output_recent", **given, limit=limit, bytes=bytes)


def read_batches(
    after: Mapping[str, int], limit: int = READ_ROWS
) -> Op[Mapping[str, list[BatchRecord]]]:
    """Read the next batches of chains, each behind a number. One statement."""
    wanted = [(chain, number) for chain, number in after.items()]
    found: dict[str, list[BatchRecord]] = {}
    for each in (
        yield from fetch(BatchRecord, "output_read", wanted=document(wanted), limit=limit)
    ):
        found.setdefault(each.chain_id, []).append(each)
    return found


CONFINED = (
    "output.read",
    ("output_epochs", {"ids": "chains"}),
    ("output_recent", {"id": "chain"}),
    ("output_said", {"id": "chain"}),
    ("output_read", {"columns": (0,)}),
)
"""What principals that are confined to one context may read, and by what each statement is cut."""
