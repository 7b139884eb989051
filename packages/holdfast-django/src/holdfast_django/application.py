"""The application of a Django process: the one that settings.HOLDFAST_APP names, or one made for DATABASES."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.module_loading import import_string

from holdfast.core.errors import AppNotLoaded, UnusableUrl
from holdfast_django import database_url, is_in_memory

if TYPE_CHECKING:
    from holdfast.app import Holdfast

APP_SETTING = "HOLDFAST_APP"
DATABASE_SETTING = "HOLDFAST_DATABASE"
EMPTY_URL = "sqlite:///:memory:"
"""Where an application leads while Django's own database is in memory: nothing must reach a real one by mistake."""

_NAME_IT = (
    f'name yours in the settings, as in {APP_SETTING} = "shop.jobs.app"; without it one is made'
)

_lock = RLock()
_made: dict[str, Holdfast] = {}
_registrations: list[Callable[[Holdfast], None]] = []


def database_alias() -> str:
    """Return the alias in DATABASES where Holdfast's tables are: settings.HOLDFAST_DATABASE, or "default"."""
    return str(getattr(settings, DATABASE_SETTING, None) or DEFAULT_DB_ALIAS)


def load_django_app() -> Holdfast:
    """Return this process's application, with every known task registered.

    Raises: AppNotLoaded when settings.HOLDFAST_APP is no application; UnusableUrl for other databases.
    """
    app = _find()
    app.migrate_command = _migrate_command()
    for register in _registrations:
        register(app)
    return app


def on_load(register: Callable[[Holdfast], None]) -> None:
    """Have a function register what it knows each time that the application is asked for."""
    _registrations.append(register)


def use_console_of_worker() -> None:
    """Leave the console of a worker to Holdfast's log, which shows Django's records too: once each, without its jobs.

    Other handlers of Django's loggers stay, and the records themselves: error reporting sees them.
    """
    for name in ("django", "django_tasks"):
        logger = logging.getLogger(name)
        for each in logger.handlers[:]:
            if type(each) is logging.StreamHandler and each.stream is sys.stderr:
                logger.removeHandler(each)
    for name in ("django.tasks", "django_tasks"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _find() -> Holdfast:
    spec = getattr(settings, APP_SETTING, None)
    if not spec:
        return _make(database_alias())
    from holdfast.app import Holdfast

    name = str(spec).replace(":", ".")
    try:
        app = import_string(name)
    except ImportError as error:
        raise _explain_app_error(name) from error
    if not isinstance(app, Holdfast) or not app.url:
        # Asking for its URL also ends the waiting of one that was made while the settings were being read.
        raise _explain_app_error(name)
    return app


def _explain_app_error(name: str) -> AppNotLoaded:
    """Say what is wrong with settings.HOLDFAST_APP: a name that does not exist, or a module that cannot be imported."""
    from holdfast.cli.session import load_app

    module, _, attribute = name.rpartition(".")
    reason, advice = "that is not a name in a module", _NAME_IT
    details: tuple[str, ...] = ()
    if module:
        try:
            load_app(f"{module}:{attribute}")
        except AppNotLoaded as found:
            advice = _NAME_IT if found.help == AppNotLoaded.fix else found.help
            reason, details = found.message, found.details
    return AppNotLoaded(f"{APP_SETTING} is {name!r}: {reason}", help=advice, details=details)


def _migrate_command() -> str:
    alias = database_alias()
    return f"manage.py migrate{'' if alias == DEFAULT_DB_ALIAS else f' --database {alias}'}"


def _make(alias: str) -> Holdfast:
    from holdfast.app import Holdfast

    if alias not in connections.settings:
        raise UnusableUrl(
            f"{DATABASE_SETTING} is {alias!r}, which is not in DATABASES",
            help=f"use one of {', '.join(connections.settings)}",
        )
    with _lock:
        if alias not in _made:
            _made[alias] = Holdfast(EMPTY_URL if is_in_memory(alias) else database_url(alias))
        return _made[alias]
