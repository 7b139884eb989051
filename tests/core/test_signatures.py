"""Signatures: what handlers of every form declare, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import pytest

from holdfast.core.errors import HandlerInvalid
from holdfast.core.signatures import HandlerSignature, signature_of

T = TypeVar("T")


class Job(Generic[T]):
    """Stands for the generic class of jobs."""


@dataclass
class Order:
    """An input."""

    id: int


class Continue:
    """An outcome."""


class Snooze(Generic[T]):
    """An outcome that is generic."""


OUTCOMES = (Continue, Snooze)


def plain(job: Job[Order]) -> str: ...  # type: ignore[empty-body]
async def awaited(job: Job[Order]) -> str | Continue: ...  # type: ignore[empty-body]
def silent(job: Job[Order]) -> None: ...
def only_outcomes(job: Job[Order]) -> Continue | Snooze[int]: ...  # type: ignore[empty-body]
def optional(job: Job[Order]) -> str | Continue | None: ...
def never(job: Job[Order]) -> NoReturn: ...  # type: ignore[empty-body]
def bare(job: Job) -> int: ...  # type: ignore[type-arg, empty-body]
def unannotated(job): ...  # type: ignore[no-untyped-def]
def generic(job: Job[T]) -> T: ...  # type: ignore[empty-body]
def batch(jobs: list[Job[Order]]) -> list[str | Continue] | None: ...
def batch_of_any(jobs: Sequence[Job[dict[str, int]]]) -> None: ...
def with_defaults(job: Job[Order], retries: int = 3, *args: Any, **more: Any) -> int: ...  # type: ignore[empty-body]
def not_a_type(job: 5) -> "neither(": ...  # type: ignore[valid-type]  # noqa: F722


class Handlers:
    """Handlers that are not plain functions."""

    def method(self, job: Job[Order]) -> str: ...  # type: ignore[empty-body]

    def __call__(self, job: Job[Order]) -> int: ...  # type: ignore[empty-body]


@functools.wraps(plain)
def wrapped(*args: Any, **more: Any) -> Any: ...


def with_tenant(tenant: str, job: Job[Order]) -> str: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, HandlerSignature(Order, str, False)),
        (awaited, HandlerSignature(Order, str, False)),
        (silent, HandlerSignature(Order, type(None), False)),
        (only_outcomes, HandlerSignature(Order, Any, False)),
        (optional, HandlerSignature(Order, str | None, False)),
        (never, HandlerSignature(Order, Any, False)),
        (bare, HandlerSignature(Any, int, False)),
        (unannotated, HandlerSignature(Any, Any, False)),
        (generic, HandlerSignature(Any, Any, False)),
        (batch, HandlerSignature(Order, str | None, True)),
        (batch_of_any, HandlerSignature(dict[str, int], type(None), True)),
        (with_defaults, HandlerSignature(Order, int, False)),
        (not_a_type, HandlerSignature(Any, Any, False)),
        (Handlers().method, HandlerSignature(Order, str, False)),
        (Handlers(), HandlerSignature(Order, int, False)),
        (wrapped, HandlerSignature(Order, str, False)),
        (functools.partial(with_tenant, "acme"), HandlerSignature(Order, str, False)),
    ],
)
def test_annotations_are_read(function: Callable[..., Any], expected: HandlerSignature) -> None:
    assert signature_of(function, Job, OUTCOMES) == expected


def no_parameter() -> None: ...
def keyword_only(*, job: Job[Order]) -> None: ...
def two_needed(job: Job[Order], tenant: str) -> None: ...
def absent_name(job: Job[Absent]) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def absent_attribute(job: Job[functools.Absent]) -> None: ...  # type: ignore[name-defined]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (no_parameter, "no parameter for the job"),
        (keyword_only, "no parameter for the job"),
        (two_needed, "needs more than the job: tenant"),
        (absent_name, "Absent"),
        (absent_attribute, "Absent"),
        (min, "has no readable signature"),
    ],
)
def test_what_cannot_serve_as_a_handler_is_refused(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(HandlerInvalid, match=says) as caught:
        signature_of(function, Job, OUTCOMES)
    assert caught.value.help
