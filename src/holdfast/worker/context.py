"""The job's context for whoever logs or traces inside a handler."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class JobContext(NamedTuple):
    """Which job this code runs for."""

    job_id: str
    type: str
    chain_id: str
    worker: str
    attempt: int
    trace: str | None


current_job: ContextVar[JobContext | None] = ContextVar("holdfast_job", default=None)
