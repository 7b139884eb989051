"""Celery's decorators, canvas and beat schedules on Holdfast, for moving a project one task at a time.

What is accepted has the effect it has in Celery; everything else is refused with what to write instead. Celery itself
is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_celery.application import Celery as Celery
    from holdfast_celery.application import shared_task as shared_task
    from holdfast_celery.canvas import TaskSignature as TaskSignature
    from holdfast_celery.canvas import chain as chain
    from holdfast_celery.canvas import chord as chord
    from holdfast_celery.canvas import group as group
    from holdfast_celery.canvas import signature as signature
    from holdfast_celery.exceptions import MaxRetriesExceededError as MaxRetriesExceededError
    from holdfast_celery.exceptions import TaskRetry as TaskRetry
    from holdfast_celery.result import AsyncResult as AsyncResult
    from holdfast_celery.result import GroupResult as GroupResult
    from holdfast_celery.schedules import crontab as crontab
    from holdfast_celery.tasks import CeleryTask as CeleryTask
    from holdfast_celery.tasks import CeleryTask as Task  # noqa: F401

_NAMES = {
    "application": ("Celery", "shared_task"),
    "schedules": ("crontab",),
    "canvas": ("TaskSignature", "chain", "chord", "group", "signature"),
    "result": ("AsyncResult", "GroupResult"),
    "exceptions": ("MaxRetriesExceededError", "TaskRetry"),
    "tasks": ("CeleryTask",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryTask",
    "GroupResult",
    "MaxRetriesExceededError",
    "TaskRetry",
    "TaskSignature",
    "chain",
    "chord",
    "crontab",
    "group",
    "shared_task",
    "signature",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use; refuse what else Celery offers, with what to write instead."""
    if name == "Task":
        name = "CeleryTask"
    if name == "states":
        return import_module(f"{__name__}.states")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    from holdfast_celery.coverage import refuse_import

    raise refuse_import(__name__, name)
