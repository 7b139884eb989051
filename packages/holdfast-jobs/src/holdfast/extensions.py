"""Extensions: installed packages that add rows to the tables that Holdfast itself uses.

A package names its `Extension` under the entry point group `holdfast.extensions`. What needs imports is named as
"module:NAME" and imported when its table is first read, so that an installed extension costs nothing until it is used.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.core.errors import Explanation, MissingExtra, explanations

GROUP = "holdfast.extensions"


class LazyCommand(NamedTuple):
    """A command's module, which has it under its name, and its line in the help, known without importing it."""

    module: str
    text: str


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Extension(NamedTuple):
    """What a package adds; each field is one of Holdfast's own tables, and its rows are of that table's type."""

    commands: Mapping[str, Mapping[str, LazyCommand]] = _NOTHING
    """Commands of the command line, by section of the help and by name."""

    actions: Mapping[str, str] = _NOTHING
    """What roles are asked for, as in "archive.run", and the least role that may: viewer, operator or developer."""

    confinement: str = ""
    """What confines principals to one context: a class as `admin.access.Confinement` in "module:NAME"."""

    confined: str = ""
    """What such principals may do: names of actions, and pairs of a statement and how it is cut."""

    routes: str = ""
    """Routes of the HTTP API: rows of `web.route.Route`."""

    dashboard: str = ""
    """The dashboard itself: a function from a `web.app.Site` to `web.app.Pages`."""

    pages: str = ""
    """Pages of the dashboard: method, path, actions of which one is required, and handler."""

    job_cards: str = ""
    """Cards on a job's page: functions from its context and the job to a template and its values, or None."""

    menu: Sequence[tuple[str, str, str, str]] = ()
    """Entries of its menu: name, word, path, and the letter of its shortcut."""

    sentences: Mapping[str, str] = _NOTHING
    """What pages say after a change, by the name given to `redirect_back`."""

    templates: str = ""
    """The package whose folder `templates` has the pages' templates."""

    explanations: str = ""
    """What a waiting job may wait for: functions from a `Store`, a job and its `DeclaredLimits` to an operation."""

    checks: str = ""
    """Checks of the doctor: functions from a `Store` to an operation that returns findings."""

    server_checks: Mapping[str, str] = _NOTHING
    """Checks of a database server by dialect: functions as `scheduler.doctor.checks.CheckServer` in "module:NAME"."""

    replication: Mapping[str, str] = _NOTHING
    """What asks a server's hosts who follows whom, by dialect: functions from a `Database` in "module:NAME"."""

    upgrades: Mapping[str, str] = _NOTHING
    """What applies migrations to a database server by dialect: functions in "module:NAME"."""

    runners: str = ""
    """Runners of a tick: functions from an application and its settings to a `scheduler.runner.Runner`, or None."""

    settings: str = ""
    """Groups of settings: classes as in `settings.definitions`."""

    notifiers: Mapping[str, str] = _NOTHING
    """Notifiers by the scheme of their URL: functions as `notify.factory.OpenNotifier` in "module:NAME"."""

    costs: str = ""
    """The module that counts what jobs cost, with `cost_of`, `spend` and `refund`; there is one."""

    errors: str = ""
    """The module of its errors: subclasses of `HoldfastError` with codes of their own."""

    events: str = ""
    """Events that it emits: rows of `core.events.EventSpec`."""

    metrics: str = ""
    """What they measure: rows of `core.events.Measured`."""

    statements: str = ""
    """The package whose folders `sql/postgres` and `sql/sqlite` have its named statements."""


@cache
def find_extensions() -> Sequence[Extension]:
    """Return the extensions of the installed packages, in the order of their names."""
    return [import_name(target) for _, target in sorted(set(_entry_points()))]


@cache
def rows(table: str) -> Sequence[Any]:
    """Return what extensions add to a table, in their order."""
    found = [getattr(each, table) for each in find_extensions()]
    return [row for name in found if name for row in import_name(name)]


def merge(table: str) -> Mapping[str, Any]:
    """Return what extensions add to a table that is a mapping in the `Extension` itself."""
    return {name: row for each in find_extensions() for name, row in getattr(each, table).items()}


def modules_of(table: str) -> Sequence[str]:
    """Return the modules or packages that extensions name for a table."""
    return [name for each in find_extensions() if (name := getattr(each, table))]


def count_costs() -> Any:
    """Return the module that counts what jobs cost. Raises: MissingExtra."""
    for name in modules_of("costs"):
        return import_module(name)
    raise MissingExtra(
        "counting what jobs cost needs the costs extra",
        help='run: pip install "holdfast-jobs[costs]"',
    )


def explain_codes() -> Mapping[str, Explanation]:
    """Return what there is to say about every code, those of extensions included."""
    for module in modules_of("errors"):
        import_module(module)
    return explanations()


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` that imports its public names at their first use, given those of each module.

    An extension's package is imported whenever Holdfast starts, so it should import nothing by itself.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return find


def import_name(target: str) -> Any:
    """Return what "module:NAME" names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _entry_points() -> Iterator[tuple[str, str]]:
    """Read name and target of each entry point of the group.

    By hand: the standard library's reader takes longer to import than `holdfast --help` takes altogether.
    """
    for folder in dict.fromkeys(sys.path):
        try:
            found = os.listdir(folder or ".")  # noqa: PTH208  pathlib is not imported at this point
        except OSError:
            continue
        for each in found:
            if each.endswith((".dist-info", ".egg-info")):
                yield from _read_entry_points(
                    f"{folder or os.curdir}{os.sep}{each}{os.sep}entry_points.txt"
                )


def _read_entry_points(path: str) -> Iterator[tuple[str, str]]:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        content = os.read(file, os.fstat(file).st_size)
    finally:
        os.close(file)
    _, mark, rest = content.partition(b"[%s]" % GROUP.encode())
    if not mark:
        return
    for line in rest.partition(b"\n[")[0].decode().splitlines():
        name, equals, target = line.partition("=")
        if equals:
            yield name.strip(), target.strip()
