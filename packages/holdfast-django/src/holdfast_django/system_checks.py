"""What `manage.py check` says about Holdfast, and `manage.py check --database default` about its database."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections
from django.utils.module_loading import module_has_submodule

import django
from holdfast.core.errors import HoldfastError
from holdfast.core.registry import is_name
from holdfast_django import database_url, is_in_memory
from holdfast_django.application import (
    APP_SETTING,
    DATABASE_SETTING,
    database_alias,
    load_django_app,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.scheduler.doctor import Finding
    from holdfast_django.tasks import HoldfastBackend

_OPTIONS = frozenset({"modules"})
_APP = "holdfast_django"
_BACKEND = f"{_APP}.tasks.HoldfastBackend"
_FRAMEWORKS = ("django.tasks", "django_tasks", f"{_APP}.tasks")
"""Modules that `@task` comes from."""
_COMMAND = re.compile(r"\bholdfast(?= [a-z])")


def check_backend(backend: HoldfastBackend) -> Iterator[CheckMessage]:
    """Check an entry of TASKS."""
    where = f"TASKS[{backend.alias!r}]"
    if not apps.is_installed(_APP):
        yield Error(
            f"{where} needs {_APP!r} in INSTALLED_APPS.",
            hint="It finds your apps' tasks, creates Holdfast's tables and adds the worker command.",
            id="holdfast.E001",
        )
    for each in sorted(set(backend.options) - _OPTIONS):
        yield Error(
            f"{where} has no option {each!r}.",
            hint=f"There is {', '.join(sorted(_OPTIONS))}. The database is settings.{DATABASE_SETTING}.",
            id="holdfast.E002",
        )
    for each in sorted(backend.queues):
        if not is_name(f"{each}:task"):
            yield Error(
                f"{where} has a queue {each!r}, which cannot be part of a job type's name.",
                hint="Use letters, digits, '_', '-' and '.'.",
                id="holdfast.E003",
            )


def own_backends() -> list[Mapping[str, Any]]:
    """Return the entries of TASKS that are Holdfast's."""
    configured = getattr(settings, "TASKS", None) or {}
    return [
        each
        for each in configured.values()
        if str(each.get("BACKEND")).startswith("holdfast_django.")
    ]


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check which database the application has."""
    alias = database_alias()
    if alias not in connections.settings:
        known = ", ".join(connections.settings)
        return [
            Error(
                f"{DATABASE_SETTING} is {alias!r}, which is not in DATABASES.",
                hint=f"Use one of {known}.",
                id="holdfast.E004",
            )
        ]
    try:
        app = load_django_app()
    except HoldfastError as error:
        return [_error(error, "holdfast.E005")]
    return [*_check_same_database(app, alias), *_check_transactions(alias), *_check_tasks()]


def check_database(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check the database itself, as `holdfast doctor` does; `manage.py migrate` is about to create what is missing."""
    alias = database_alias()
    is_other = alias not in (databases or ()) or sys.argv[1:2] == ["migrate"]
    if is_other or is_in_memory(alias):
        return []
    try:
        app = load_django_app()
        migrate = f"run {app.migrate_command}"
        return [_message(each, migrate) for each in _examine(app) if each.verdict != "ok"]
    except HoldfastError as error:
        return [_error(error, "holdfast.E007")]


def _check_same_database(app: Holdfast, alias: str) -> Iterator[CheckMessage]:
    if not is_in_memory(alias) and app.url != database_url(alias):
        yield Error(
            f"{APP_SETTING} has another database than DATABASES[{alias!r}].",
            hint=f"Make it with Holdfast(database_url({alias!r})), or set {DATABASE_SETTING}.",
            id="holdfast.E006",
        )


def _check_transactions(alias: str) -> Iterator[CheckMessage]:
    configured = connections[alias].settings_dict
    if not configured.get("AUTOCOMMIT", True):
        yield Warning(
            f"DATABASES[{alias!r}] has AUTOCOMMIT off.",
            hint="A task enqueued outside transaction.atomic() waits for your own commit.",
            id="holdfast.W001",
        )
    mode = str(configured.get("OPTIONS", {}).get("transaction_mode") or "")
    if (
        connections[alias].vendor == "sqlite"
        and django.VERSION >= (5, 1)
        and mode.upper() not in ("IMMEDIATE", "EXCLUSIVE")
    ):
        yield Warning(
            f"Transactions in DATABASES[{alias!r}] begin without SQLite's write lock.",
            hint="One that reads before it writes fails with 'database is locked' while a worker writes: set"
            ' "OPTIONS": {"transaction_mode": "IMMEDIATE"}.',
            id="holdfast.W002",
        )


def _check_tasks() -> Iterator[CheckMessage]:
    """Without TASKS, Django's own default runs each task where it is enqueued, and nothing else shows that."""
    if settings.is_overridden("TASKS"):
        return
    found = [
        each.name
        for each in apps.get_app_configs()
        if each.module is not None
        and module_has_submodule(each.module, "tasks")
        and _uses_tasks(f"{each.name}.tasks")
    ]
    if found:
        yield Warning(
            f"TASKS is not set: the tasks of {', '.join(found)} run inside the request that enqueues them.",
            hint=f'Set TASKS = {{"default": {{"BACKEND": "{_BACKEND}"}}}}.',
            id="holdfast.W003",
        )


def _uses_tasks(name: str) -> bool:
    """Whether a module imports `@task`; it is only read, for others name their modules `tasks` too."""
    spec = find_spec(name)
    if spec is None or not spec.has_location:
        return False
    file = Path(str(spec.origin))
    files = file.parent.rglob("*.py") if spec.submodule_search_locations else [file]
    return any(_imports_tasks(each) for each in files)


def _imports_tasks(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}", *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        if any(
            each == name or each.startswith(f"{name}.") for each in names for name in _FRAMEWORKS
        ):
            return True
    return False


def _examine(app: Holdfast) -> list[Finding]:
    from holdfast.scheduler.doctor import problem
    from holdfast.scheduler.doctor.checks import run_checks
    from holdfast.settings import load_settings
    from holdfast.storage.url import parse_url

    address = parse_url(app.url)
    if address.dialect == "sqlite" and not Path(address.path).exists():
        # Opening it would create it.
        return [problem("schema", f"{address.path} does not exist", "", "migrate")]

    async def run() -> list[Finding]:
        owners = [*app.registry, *app.cycle_specs.values()]
        try:
            return await run_checks(app.database, load_settings(), owners)
        finally:
            await app.aclose()

    return asyncio.run(run())


def _message(finding: Finding, migrate: str) -> CheckMessage:
    kind = Error if finding.verdict == "problem" else Warning
    is_migration = finding.check == "schema" and "migrate" in finding.fix
    fix = migrate if is_migration else _COMMAND.sub("manage.py holdfast", finding.fix)
    text = "; ".join(filter(None, (finding.measured, finding.text)))
    return kind(f"Holdfast's {finding.check}: {text}.", hint=fix, id=f"holdfast.{finding.check}")


def _error(error: HoldfastError, id: str) -> CheckMessage:
    text = "\n\t".join((f"[{error.code}] {error.message}.", *error.details))
    return Error(text, hint=error.help or None, id=id)
