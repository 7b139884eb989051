"""The trace that a producer's jobs belong to. Nothing is imported for those who do not trace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol, TypeAlias

Trace: TypeAlias = Callable[[str], str | None]
"""The W3C trace context that is kept with new jobs of a type."""


class SendSpan(Protocol):
    """A span that is begun in a transaction and ended after its commit; see `observe.spans.SendSpan`."""

    @property
    def traceparent(self) -> str | None: ...

    def end(self, job_id: str | None = None) -> None: ...


BeginSpan: TypeAlias = Callable[[str], SendSpan]


def ambient_trace() -> Trace | None:
    """Return what names the caller's current span, or None when this process has no OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from holdfast.observe.spans import current_traceparent

    return lambda type: current_traceparent()


class Sending:
    """The spans of one write, one for each job type or event; those of a rollback are never ended."""

    def __init__(self, begin: BeginSpan) -> None:
        self._begin = begin
        self._spans: dict[str, SendSpan] = {}

    def trace(self, type: str) -> str | None:
        """Begin the span of a type; return the context to be kept with its jobs."""
        if type not in self._spans:
            self._spans[type] = self._begin(type)
        return self._spans[type].traceparent

    def end(self, job_id: str | None) -> None:
        """Say that the transaction has committed, and which job it was when there was only one."""
        for span in self._spans.values():
            span.end(job_id)
