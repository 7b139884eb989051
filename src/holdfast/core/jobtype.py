"""A job type: a name with its payloads' types, its policies and, where the code is present, its handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.core.codec import TypeCodec
from holdfast.core.lease import Lease
from holdfast.core.retry import Retry

Executor = Literal["loop", "thread", "process"]


@dataclass(frozen=True, slots=True)
class JobType:
    """Everything the code says about one job type. None leaves a value to the worker's own default."""

    name: str
    handler: Callable[..., Any] | None
    input: TypeCodec
    output: TypeCodec
    retry: Retry | None = None
    lease: Lease | None = None
    timeout_ms: int | None = None
    concurrency: int | None = None
    batch: int | None = None
    atomic: bool = False
    executor: Executor = "loop"
    event: str | None = None
    entry: bool = True
    continues_to: tuple[str, ...] | None = None
    waits_for: tuple[str, ...] | None = None
