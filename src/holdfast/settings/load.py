"""Reads settings from their sources, highest first, and refuses those that cannot be used.

Where values come from: arguments, the environment and a TOML file, brought to the same shape.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import ConfigError, UnknownVariable
from holdfast.core.suggestions import nearest
from holdfast.settings.definitions import GROUPS, Settings
from holdfast.settings.effective import shown
from holdfast.settings.rules import check_rules, follow_lease
from holdfast.settings.schema import Group, Value, Variable, variables_of

PREFIXES = ("OUTBOX_", "WORKER_", "HOLDFAST_")
"""Variables that begin so are ours; an unknown one is a mistake worth pointing out."""

# The test suite's own variables are read by nobody else.
_NOT_SETTINGS = "HOLDFAST_TEST_"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file's name and text: `holdfast.toml`, or a `pyproject.toml` whose table tool.holdfast counts."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Raw values by variable, and the names nothing is known about."""

    origin: str
    values: Mapping[str, object]
    unknown: tuple[str, ...] = ()


def from_arguments(arguments: Mapping[str, object], known: Set[str]) -> Source:
    """Take what a caller passed by variable name; None means not passed. Raises: ConfigError."""
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in known:
            raise ConfigError(f"there is no setting {name}", help="see `holdfast config show`")
    return Source("argument", given)


def from_environment(environ: Mapping[str, str], known: Set[str]) -> Source:
    """Take the environment's variables; an empty one counts as unset."""
    values = {name: text for name, text in environ.items() if name in known and text.strip()}
    unknown = sorted(
        name
        for name in environ
        if name.startswith(PREFIXES) and name not in known and not name.startswith(_NOT_SETTINGS)
    )
    return Source("env", values, tuple(unknown))


def from_file(file: SettingsFile, known: Set[str]) -> Source:
    """Take a file's values. Tables may nest: `[outbox] batch_size` is OUTBOX_BATCH_SIZE. Raises: ConfigError."""
    try:
        content: Mapping[str, Any] = tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file.name} is not valid TOML: {error}", help="mend the file") from None
    if file.name.endswith("pyproject.toml"):
        content = content.get("tool", {}).get("holdfast", {})
    values: dict[str, object] = {}
    unknown: list[str] = []
    for name, value in _flat(content):
        found = name if name in known else f"HOLDFAST_{name}"
        if found in known:
            values[found] = value
        else:
            unknown.append(name)
    return Source(file.name, values, tuple(unknown))


def _flat(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        name = f"{before}{key}".upper().replace("-", "_")
        if isinstance(value, dict):
            yield from _flat(value, f"{name}_")
        else:
            yield name, value


G = TypeVar("G", bound=Group)

DEFAULT_ORIGIN = "default"
FILES = ("holdfast.toml", "pyproject.toml")

_VARIABLES = {each.name: each for group in GROUPS.values() for each in variables_of(group)}


def load_settings(
    arguments: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read the settings of this process: its environment, and the file in the directory it runs in.

    Raises: ConfigError and its kin, before anything is connected.
    """
    environ = os.environ if environ is None else environ
    return read_settings(environ, _found_file(environ, directory or Path()), arguments or {})


def read_settings(
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Settings:
    """Read settings from what is given, without looking anywhere else. Raises: ConfigError and its kin."""
    sources = [
        from_arguments(arguments or {}, _VARIABLES.keys()),
        from_environment(environ, _VARIABLES.keys()),
    ]
    if file is not None:
        sources.append(from_file(file, _VARIABLES.keys()))
    values, origins = _resolved(_VARIABLES.values(), sources)
    groups: dict[str, Any] = {
        key: group(**{each.field: values[each.name] for each in variables_of(group)})
        for key, group in GROUPS.items()
    }
    given = frozenset(name for source in sources for name in source.values)
    warnings = tuple(_unknown(name, source.origin) for source in sources for name in source.unknown)
    settings = follow_lease(Settings(**groups, origins=origins, given=given, warnings=warnings))
    check_rules(settings)
    return settings


def load_some(names: Iterable[str], arguments: Mapping[str, object]) -> dict[str, Value]:
    """Read some settings of this process alone, for those whom no others concern. Raises: ConfigError."""
    file = _found_file(os.environ, Path())
    sources = [
        from_arguments(arguments, _VARIABLES.keys()),
        from_environment(os.environ, _VARIABLES.keys()),
        *([] if file is None else [from_file(file, _VARIABLES.keys())]),
    ]
    values, _ = _resolved([_VARIABLES[name] for name in names], sources)
    return values


def read_group(group: type[G], environ: Mapping[str, str]) -> G:
    """Read an application's own group from the environment. Raises: ConfigError."""
    variables = variables_of(group)
    source = from_environment(environ, {each.name for each in variables})
    values, _ = _resolved(variables, [source])
    return group(**{each.field: values[each.name] for each in variables})


def _found_file(environ: Mapping[str, str], directory: Path) -> SettingsFile | None:
    named = environ.get("HOLDFAST_CONFIG")
    for path in [Path(named)] if named else [directory / name for name in FILES]:
        try:
            return SettingsFile(path.name, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if named:
                raise ConfigError(f"there is no file HOLDFAST_CONFIG={named} (env)") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
    return None


def _resolved(
    variables: Iterable[Variable], sources: Sequence[Source]
) -> tuple[dict[str, Value], dict[str, str]]:
    """Find the value and origin of every variable; all that cannot be read are told at once."""
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    wrong: list[tuple[Variable, object, str, str]] = []
    unset: list[Variable] = []
    for each in variables:
        source = next((one for one in sources if each.name in one.values), None)
        if source is None:
            values[each.name], origins[each.name] = each.default, DEFAULT_ORIGIN
            unset.append(each)
            continue
        raw = source.values[each.name]
        try:
            values[each.name], origins[each.name] = each.kind.read(raw), source.origin
        except ValueError as error:
            wrong.append((each, raw, source.origin, str(error)))
    if wrong:
        raise _unusable(wrong)
    for each in unset:
        if each.fallback is not None:
            values[each.name] = values[each.fallback]
            if origins[each.fallback] != DEFAULT_ORIGIN:
                origins[each.name] = f"{origins[each.fallback]}: {each.fallback}"
    return values, origins


def _unusable(wrong: Sequence[tuple[Variable, object, str, str]]) -> ConfigError:
    lines = [f"{each.name}={shown(each, raw)} ({origin})" for each, raw, origin, _ in wrong]
    advice = "; ".join(
        f"set {each.name} to {each.kind.words}" if not told else f"{each.name}: {told}"
        for each, _, _, told in wrong
    )
    if len(wrong) == 1:
        return ConfigError(f"{wrong[0][0].name} cannot be used", details=lines, help=advice)
    return ConfigError(f"{len(wrong)} settings cannot be used", details=lines, help=advice)


def _unknown(name: str, origin: str) -> UnknownVariable:
    near = nearest(name, _VARIABLES)
    return UnknownVariable(f"{name} ({origin}) is not a setting", help=near or None)
