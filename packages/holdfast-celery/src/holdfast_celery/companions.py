"""What goes with Celery in a project, and what becomes of it: packages beside it, and its names in texts."""

from __future__ import annotations

import re
from collections.abc import Mapping

_BEAT_MODELS = "its rows become run-time schedules: call schedules.set(tx, name, task, …) of holdfast_schedules"
_INSTRUMENTS = "it sees Celery's tasks only: see `holdfast_otel` and app.observe(…), and remove it"
_PROCESSES = "tasks run in threads, without billiard: import what you need from holdfast_celery"

PACKAGES: Mapping[str, str] = {
    "kombu": "there is no broker: name queues as texts, leave its serializers out; payloads are JSON",
    "billiard": _PROCESSES,
    "django_celery_beat": _BEAT_MODELS,
    "django_celery_results": "results are kept with their jobs: use app.AsyncResult(id)",
    "opentelemetry.instrumentation.celery": _INSTRUMENTS,
    "sentry_sdk.integrations.celery": _INSTRUMENTS,
}
"""What is imported from beside Celery, and what to do instead."""

APPS: Mapping[str, str] = {
    "celery": "nothing is imported from it: remove it",
    "django_celery_beat": "import its schedules with `holdfast migrate-from celery-beat`, then remove it",
    "django_celery_results": "results are kept with their jobs; remove it",
    "health_check.contrib.celery": "check app.control.ping() instead, and remove it",
    "health_check.contrib.celery_ping": "check app.control.ping() instead, and remove it",
}
"""What is in Django's INSTALLED_APPS, and what to do instead."""

_PATCHED: Mapping[str, str] = {
    "celery.app.task.Task": "holdfast_celery.Task",
    "celery.Task": "holdfast_celery.Task",
    "celery.app.control.Control": "holdfast_celery.control.WorkerControl",
    "celery.app.control.Inspect": "holdfast_celery.control.WorkerInspection",
    "celery.result.AsyncResult": "holdfast_celery.result.AsyncResult",
    "celery.app.base.Celery": "holdfast_celery.Celery",
    "celery.Celery": "holdfast_celery.Celery",
}
"""Classes that tests name in texts, to patch them."""

_DOTTED = re.compile(r"celery(\.\w+)+")


def find_package(module: str | None) -> str | None:
    """Return what to do instead of importing from a module, None for one that does not go with Celery."""
    for name, instead in PACKAGES.items():
        if module == name or (module or "").startswith(f"{name}."):
            return instead
    return None


def find_app(app: str) -> str | None:
    """Return what to do with an entry of INSTALLED_APPS, None for one that does not go with Celery."""
    for name, instead in APPS.items():
        if app == name or app.startswith(f"{name}.apps."):
            return instead
    return None


def is_dotted_name(text: str) -> bool:
    """Whether a text is the name of something in Celery's package."""
    return _DOTTED.fullmatch(text) is not None


def patched_name(text: str) -> str | None:
    """Return what takes the place of a name of Celery's that is patched, None if nothing does."""
    for name, ours in _PATCHED.items():
        if text == name or text.startswith(f"{name}."):
            return ours + text.removeprefix(name)
    return None
