"""The current job as a context variable, and how loggers include it.

logging:    handler.addFilter(JobContextFilter())
structlog:  structlog.configure(processors=[add_job_context, …])
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec


class JobContext(msgspec.Struct, frozen=True, gc=False):
    """The job, its chain, and the attempt that runs; `trace` is the creator's W3C traceparent."""

    job_id: str
    type: str
    chain_id: str
    worker: str
    attempt: int
    trace: str | None = None


current_job: ContextVar[JobContext | None] = ContextVar("holdfast_job", default=None)
"""Set by the worker around every attempt; None outside of one."""

parking: dict[int, tuple[JobContext, type[BaseException]]] = {}
"""Attempts whose durable functions are being parked, by the identity of their context, with what ends their calls."""


def refuse_while_parking() -> None:
    """Keep a function that is being parked from sending what it has not come to. Raises: what ends its calls."""
    found = parking.get(id(current_job.get()))
    if found is not None:
        raise found[1]


class JobContextFilter(logging.Filter):
    """Adds the fields of the current job to every record; existing fields are kept."""

    def __init__(self, absent: str | None = None) -> None:
        """Outside of a job the fields have the value `absent`, so that a format can use them."""
        super().__init__()
        self._absent = absent

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields and let the record pass."""
        context = current_job.get()
        for field in JobContext.__struct_fields__:
            if not hasattr(record, field):
                value = self._absent if context is None else getattr(context, field)
                setattr(record, field, value)
        return True


def add_job_context(
    logger: Any, method: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the fields of the current job to a structlog event; nothing outside of a job."""
    context = current_job.get()
    if context is not None:
        for field in JobContext.__struct_fields__:
            event_dict.setdefault(field, getattr(context, field))
    return event_dict
