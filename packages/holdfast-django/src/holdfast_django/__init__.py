"""A Django app for INSTALLED_APPS: Holdfast in Django's own database, migrated and run by `manage.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from holdfast.core.errors import UnusableUrl
from holdfast.storage.url import parse_url

if TYPE_CHECKING:
    from holdfast.app import Holdfast

    app: Holdfast
    """This process's application, for commands and for your own code."""

_CONNECTION_OPTIONS = (
    "service",
    "passfile",
    "channel_binding",
    "target_session_attrs",
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl"),
)
"""What of OPTIONS decides which server is reached and how it is trusted; the rest is about Django's own sessions."""


def __getattr__(name: str) -> Any:
    """Make the application at its first use: `holdfast status --app holdfast_django:app` needs no more."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from django.apps import apps

    import django

    is_ours = not apps.ready and not apps.loading
    if is_ours:
        django.setup()
    from holdfast_django.application import load_django_app, use_console_of_worker

    if is_ours:
        use_console_of_worker()
    return load_django_app()


def database_url(alias: str = "default") -> str:
    """Return the URL of one of Django's DATABASES, for `Holdfast(database_url())`.

    While tests run, this is Django's test database. Raises: UnusableUrl for other engines, and for
    a test database in memory, which only Django's own connection reaches.
    """
    from django.db import connections

    connection = connections[alias]
    settings: dict[str, Any] = connection.settings_dict
    name = str(settings["NAME"] or "")
    # Engines have many names, of GIS and of wrappers that measure; the vendor is that of the database.
    if connection.vendor == "sqlite":
        return parse_url(f"sqlite:///{name}").url
    if connection.vendor == "postgresql":
        return _postgresql_url(settings, name)
    if settings["ENGINE"] == "django.db.backends.dummy":
        raise UnusableUrl(
            f"DATABASES has no {alias!r}, or the settings are still being read",
            help="add it; if the settings import the application, pass the function: Celery(…, url=database_url)",
        )
    raise UnusableUrl(
        f"Holdfast has no store for {settings['ENGINE']}",
        help="use PostgreSQL or SQLite for this alias of DATABASES",
    )


def is_in_memory(alias: str) -> bool:
    """Whether a database of Django's is one of SQLite in memory, which only Django's own connection reaches."""
    from django.db import connections

    name = str(connections[alias].settings_dict["NAME"] or "")
    return name == ":memory:" or "mode=memory" in name


def _postgresql_url(settings: dict[str, Any], name: str) -> str:
    query = {"dbname": name}
    for key, option in (("HOST", "host"), ("PORT", "port"), ("USER", "user")):
        if settings.get(key):
            query[option] = str(settings[key])
    if settings.get("PASSWORD"):
        query["password"] = str(settings["PASSWORD"])
    for option in _CONNECTION_OPTIONS:
        if settings.get("OPTIONS", {}).get(option):
            query[option] = str(settings["OPTIONS"][option])
    return f"postgresql:///?{urlencode(query, quote_via=quote)}"
