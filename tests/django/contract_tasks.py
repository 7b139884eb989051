"""The tasks of the contract in `django_tasks`; a worker has to find them by their paths."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, task
else:
    from django_tasks import TaskContext, task


class TaskRefused(Exception):
    """An exception of one's own, which a result names by its path."""


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    """Return what arrived."""
    return [list(args), kwargs]


@task
def nothing() -> None:
    """Return None, which is a result."""


@task
def fail(text: str = "on purpose") -> None:
    """Raise an exception of our own."""
    raise TaskRefused(text)


@task
def leave() -> None:
    """Ask the process to exit."""
    raise SystemExit(3)


@task
def return_an_object() -> object:
    """Return what JSON does not have."""
    return object()


@task(takes_context=True)
def describe(context: TaskContext[Any, Any], name: str) -> dict[str, Any]:
    """Return what the context says."""
    return {"attempt": context.attempt, "id": context.task_result.id, "name": name}


@task
async def echo_later(value: Any) -> Any:
    """Return the argument after other coroutines had their turn."""
    await asyncio.sleep(0)
    return value


@task
async def fail_later() -> None:
    """Raise an exception in a coroutine."""
    await asyncio.sleep(0)
    raise TaskRefused("later")
