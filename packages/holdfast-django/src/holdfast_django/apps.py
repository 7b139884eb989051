"""Django's side of an application: tasks are imported when Django is ready, tables migrated with Django's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import Tags, register
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import module_has_submodule

from holdfast.core.errors import AppNotLoaded
from holdfast.worker.handler_threads import AROUND_THREAD_CALLS
from holdfast_django import database_url, is_in_memory
from holdfast_django.application import APP_SETTING, EMPTY_URL, database_alias, load_django_app
from holdfast_django.system_checks import check_database, check_settings, own_backends


class HoldfastAppConfig(AppConfig):
    """The app `holdfast_django`."""

    name = "holdfast_django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import the application and every app's `tasks`, so that handlers are registered in every process."""
        if getattr(settings, APP_SETTING, None):
            with suppress(AppNotLoaded) if _is_managed() else nullcontext():
                load_django_app()
        for name in _task_modules():
            import_module(name)
        register(check_settings, "holdfast")
        register(check_database, Tags.database)
        post_migrate.connect(_migrate, sender=self)
        AROUND_THREAD_CALLS.append(_close_old_connections)


def _close_old_connections() -> None:
    """Do as Django does around a request, but leave a test's transaction alone, which Django would break off."""
    for each in connections.all(initialized_only=True):
        if not each.in_atomic_block:
            each.close_if_unusable_or_obsolete()


def _is_managed() -> bool:
    """Whether this is `manage.py`, whose checks and commands report a wrong setting without a traceback."""
    return Path(sys.argv[0]).name in ("manage.py", "django-admin", "__main__.py")


def _task_modules() -> Iterator[str]:
    """The modules that have tasks: `tasks` of every app, and those that the options of TASKS name."""
    ours = own_backends()
    if not ours:
        # Of projects that do not use tasks, nothing is imported that was not imported before.
        return
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "tasks"):
            yield f"{config.name}.tasks"
    for each in ours:
        yield from each.get("OPTIONS", {}).get("modules", ())


def _migrate(using: str, **_: Any) -> None:
    """Create or upgrade Holdfast's tables after `manage.py migrate`, and in every test database."""
    if using != database_alias():
        return
    app = load_django_app()
    if is_in_memory(using):
        # Nothing that a test forgets to join may reach the application's real database.
        app.bind(EMPTY_URL)
        _migrate_in_memory(using)
        return
    url = database_url(using)
    if app.url != url:
        # Django has made a test database since the application was imported.
        app.bind(url)
    app.migrate()
    app.close()


def _migrate_in_memory(using: str) -> None:
    """Only Django's own connection leads to its database in memory, so the tables are created on that."""
    from holdfast.storage.id_generator import new_id
    from holdfast.storage.sqlite.connection import LockWait
    from holdfast.storage.sqlite.migrations import apply_migrations

    connection = connections[using]
    connection.ensure_connection()
    apply_migrations(connection.connection, LockWait(5.0), new_id)
