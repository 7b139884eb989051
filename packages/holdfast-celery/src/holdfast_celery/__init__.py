"""Celery's decorators, canvas and beat schedules on Holdfast, for moving a project one task at a time.

What is accepted has the effect it has in Celery; everything else is refused with what to write instead. Celery itself
is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_celery.application import Celery as Celery
    from holdfast_celery.application import shared_task as shared_task
    from holdfast_celery.beat_schedule import crontab as crontab
    from holdfast_celery.canvas import TaskSignature as TaskSignature
    from holdfast_celery.canvas import chain as chain
    from holdfast_celery.canvas import chord as chord
    from holdfast_celery.canvas import group as group
    from holdfast_celery.canvas import signature as signature
    from holdfast_celery.results import AsyncResult as AsyncResult
    from holdfast_celery.results import GroupResult as GroupResult
    from holdfast_celery.tasks import CeleryTask as CeleryTask
    from holdfast_celery.tasks import MaxRetriesExceededError as MaxRetriesExceededError
    from holdfast_celery.tasks import TaskRetry as TaskRetry

_NAMES = {
    "application": ("Celery", "shared_task"),
    "beat_schedule": ("crontab",),
    "canvas": ("TaskSignature", "chain", "chord", "group", "signature"),
    "results": ("AsyncResult", "GroupResult"),
    "tasks": ("CeleryTask", "MaxRetriesExceededError", "TaskRetry"),
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
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast_celery.coverage import find_feature, refuse

    found = find_feature("import", name)
    if found is None or found.is_covered:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise refuse("import", name)
