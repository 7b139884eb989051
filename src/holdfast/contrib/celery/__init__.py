"""Celery's decorators, canvas and beat schedules on Holdfast, for moving a project one task at a time.

What is accepted has the effect it has in Celery; everything else is refused with what to write instead. Celery itself
is not needed.
"""

from typing import Any

from holdfast.contrib.celery.application import Celery, shared_task
from holdfast.contrib.celery.beat_schedule import crontab
from holdfast.contrib.celery.canvas import TaskSignature, chain, chord, group, signature
from holdfast.contrib.celery.coverage import find_feature, refuse
from holdfast.contrib.celery.results import AsyncResult, GroupResult
from holdfast.contrib.celery.tasks import CeleryTask, MaxRetriesExceededError, TaskRetry

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
    """Refuse what Celery offers under a name that is not here, with what to write instead."""
    found = find_feature("import", name)
    if found is None or found.is_covered:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise refuse("import", name)
