"""Django's side of an application: it is imported when Django is ready, and migrated with Django's own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string

from holdfast.contrib.django import database_url, is_in_memory

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SETTING = "HOLDFAST_APP"
_EMPTY = "sqlite:///:memory:"


class HoldfastAppConfig(AppConfig):
    """The app `holdfast.contrib.django`."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import the application, so that its handlers are registered in every process."""
        load_django_app()
        post_migrate.connect(_migrate, sender=self)


def load_django_app() -> Holdfast:
    """Return the application that settings.HOLDFAST_APP names. Raises: ImproperlyConfigured."""
    from holdfast.app import Holdfast

    spec = getattr(settings, SETTING, None)
    if not spec:
        raise ImproperlyConfigured(
            f'set {SETTING} to your application, for example "shop.jobs.app"'
        )
    app = import_string(str(spec).replace(":", "."))
    if not isinstance(app, Holdfast):
        raise ImproperlyConfigured(f"{SETTING} is {spec}, which is not a Holdfast()")
    return app


def _migrate(using: str, **_: Any) -> None:
    """Create or upgrade Holdfast's tables after `manage.py migrate`, and in every test database."""
    if using != DEFAULT_DB_ALIAS:
        return
    app = load_django_app()
    if is_in_memory(str(connections[using].settings_dict["NAME"])):
        # Nothing that a test forgets to join may reach the application's real database.
        app.bind(_EMPTY)
        _migrate_in_memory(using)
        return
    if app.url != database_url():
        # Django has made a test database since the application was imported.
        app.bind(database_url())
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
