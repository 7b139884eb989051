"""Reads settings from arguments, the environment and a TOML file, and options from an application's own variables."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.core.cycle import CycleSpec
from holdfast.core.env_options import FromEnv
from holdfast.core.errors import ConfigError, UnknownVariable, nearest
from holdfast.core.redaction import MASK, redact
from holdfast.core.registry import JobType
from holdfast.extensions import rows
from holdfast.settings.definitions import GROUPS, Settings
from holdfast.settings.fields import SettingsGroup, Value, Variable, variables_of
from holdfast.settings.rules import check_rules, derive_timings

PREFIXES = ("OUTBOX_", "WORKER_", "HOLDFAST_")
"""Variables with these prefixes are ours; an unknown one is reported."""

# Variables of the test suite.
_NOT_SETTINGS = "HOLDFAST_TEST_"


class SettingsFile(msgspec.Struct, frozen=True):
    """A file's name and text: `holdfast.toml`, or a `pyproject.toml` with a table tool.holdfast."""

    name: str
    text: str


class SettingsSource(msgspec.Struct, frozen=True):
    """Raw values by variable, and names that are not settings."""

    origin: str
    values: Mapping[str, object]
    unknown: tuple[str, ...] = ()


DEFAULT_ORIGIN = "default"
FILES = ("holdfast.toml", "pyproject.toml")
_FILE_NAME = "HOLDFAST_CONFIG"


@cache
def variables() -> Mapping[str, Variable]:
    """Return every variable by its name, those of extensions included."""
    groups = (*GROUPS.values(), *rows("settings"))
    return {each.name: each for group in groups for each in variables_of(group)}


def load_settings(
    arguments: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read the settings of this process: its environment, and the file in the directory it runs in.

    Raises: ConfigError or a subclass, before anything is connected.
    """
    environ = os.environ if environ is None else environ
    return read_settings(environ, _find_file(environ, directory or Path()), arguments or {})


def read_settings(
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Settings:
    """Read settings from the arguments alone. Raises: ConfigError or a subclass."""
    sources = _read_sources(environ, file, arguments or {})
    values, origins = _resolve(variables().values(), sources)

    def make(group: type[SettingsGroup]) -> Any:
        return group(**{each.field: values[each.name] for each in variables_of(group)})

    groups = {key: make(group) for key, group in GROUPS.items()}
    others = {group: make(group) for group in rows("settings")}
    given = frozenset(name for source in sources for name in source.values)
    warnings = tuple(
        _unknown_variable(name, source.origin) for source in sources for name in source.unknown
    )
    settings = derive_timings(
        Settings(**groups, others=others, origins=origins, given=given, warnings=warnings)
    )
    check_rules(settings)
    return settings


def load_some(names: Iterable[str], arguments: Mapping[str, object]) -> dict[str, Value]:
    """Read only some settings of this process; others are not validated. Raises: ConfigError."""
    sources = _read_sources(os.environ, _find_file(os.environ, Path()), arguments)
    values, _ = _resolve([variables()[name] for name in names], sources)
    return values


def _read_sources(
    environ: Mapping[str, str], file: SettingsFile | None, arguments: Mapping[str, object]
) -> list[SettingsSource]:
    """Bring all sources to the same shape, the strongest first. Raises: ConfigError."""
    sources = [_from_arguments(arguments), _from_environment(environ)]
    return sources if file is None else [*sources, _from_file(file)]


def _from_arguments(arguments: Mapping[str, object]) -> SettingsSource:
    """Take what a caller passed by variable name; None means not passed. Raises: ConfigError."""
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in variables():
            raise ConfigError(f"unknown setting {name}", help="see `holdfast config show`")
    return SettingsSource("argument", given)


def _from_environment(environ: Mapping[str, str]) -> SettingsSource:
    """Take the environment's variables; an empty one counts as unset."""
    values = {name: text for name, text in environ.items() if name in variables() and text.strip()}
    unknown = sorted(
        name
        for name in environ
        if name.startswith(PREFIXES)
        and name not in variables()
        and not name.startswith(_NOT_SETTINGS)
    )
    return SettingsSource("env", values, tuple(unknown))


def _from_file(file: SettingsFile) -> SettingsSource:
    """Take a file's values. Tables may nest: `[outbox] batch_size` is OUTBOX_BATCH_SIZE. Raises: ConfigError."""
    try:
        content = _parse(file.text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file.name} is not valid TOML: {error}", help="fix the file") from None
    if file.name.endswith("pyproject.toml"):
        content = content.get("tool", {}).get("holdfast", {})
    if not isinstance(content, dict):
        raise ConfigError(
            f"tool.holdfast of {file.name} is not a table",
            help="write [tool.holdfast] above its settings",
        )
    values: dict[str, object] = {}
    unknown: list[str] = []
    for name, value in _flatten(content):
        found = name if name in variables() else f"HOLDFAST_{name}"
        if found == _FILE_NAME:
            raise ConfigError(
                f"{file.name} cannot name the file to read instead of it",
                help=f"set {_FILE_NAME} in the environment",
            )
        if found in variables():
            values[found] = value
        else:
            unknown.append(name)
    return SettingsSource(file.name, values, tuple(unknown))


@lru_cache(maxsize=2)
def _parse(text: str) -> Mapping[str, Any]:
    """Read TOML; a project's file is long, and a process reads it again for every few settings."""
    return tomllib.loads(text)


def _flatten(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        name = f"{before}{key}".upper().replace("-", "_")
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}_")
        else:
            yield name, value


def _find_file(environ: Mapping[str, str], directory: Path) -> SettingsFile | None:
    named = environ.get(_FILE_NAME, "").strip()
    for path in [Path(named)] if named else [directory / name for name in FILES]:
        try:
            return SettingsFile(path.name, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if named:
                raise ConfigError(f"there is no file {_FILE_NAME}={named} (env)") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
    return None


def _resolve(
    variables: Iterable[Variable], sources: Sequence[SettingsSource]
) -> tuple[dict[str, Value], dict[str, str]]:
    """Return the value and origin of every variable. Raises: ConfigError, one for all invalid values."""
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
            values[each.name], origins[each.name] = each.kind.parse(raw), source.origin
        except ValueError as error:
            wrong.append((each, raw, source.origin, str(error)))
    if wrong:
        raise _invalid_settings(wrong)
    for each in unset:
        if each.fallback is not None:
            values[each.name] = values[each.fallback]
            if origins[each.fallback] != DEFAULT_ORIGIN:
                origins[each.name] = f"{origins[each.fallback]}: {each.fallback}"
    return values, origins


def _invalid_settings(wrong: Sequence[tuple[Variable, object, str, str]]) -> ConfigError:
    lines = [f"{each.name}={display_value(each, raw)} ({origin})" for each, raw, origin, _ in wrong]
    advice = "; ".join(
        f"{each.name}: {better}" if better else f"set {each.name} to {each.kind.expected}"
        for each, _, _, better in wrong
    )
    if len(wrong) == 1:
        return ConfigError(f"{wrong[0][0].name} is invalid", details=lines, help=advice)
    return ConfigError(f"{len(wrong)} settings are invalid", details=lines, help=advice)


def _unknown_variable(name: str, origin: str) -> UnknownVariable:
    near = _nearest_by_words(name) or nearest(name, variables())
    return UnknownVariable(f"{name} ({origin}) is not a setting", help=near or None)


def _nearest_by_words(name: str) -> str:
    """Suggest a setting with the rare words of a guess, such as LEASE; nothing for one that is only misspelled."""
    if nearest(name, variables(), cutoff=0.85):
        return ""
    found = Counter(word for each in variables() for word in each.split("_"))
    words = set(name.split("_"))
    rare = {each for each in words if 0 < found[each] <= _RARE}

    def alike(known: str) -> tuple[int, float]:
        """Count the rare words that both have; then less that the guess lacks is better."""
        own = set(known.split("_"))
        return len(rare & own), len(words & own) / len(own)

    best = max(map(alike, variables()))
    return (
        nearest(name, [each for each in variables() if alike(each) == best], 0) if best[0] else ""
    )


_RARE = 5
"""A word of a setting's name says what it is about unless more settings than these have it."""

_MAX_SHOWN = 200


class Effective(msgspec.Struct, frozen=True):
    """One line of `holdfast config show --origin`."""

    name: str
    value: str
    origin: str


def effective(settings: Settings) -> list[Effective]:
    """Return every setting with its value and origin."""
    held = [getattr(settings, key) for key in GROUPS]
    return [
        Effective(
            each.name, display_value(each, getattr(group, each.field)), settings.origin(each.name)
        )
        for group in (*held, *settings.others.values())
        for each in _variables_of(group)
    ]


def _variables_of(group: SettingsGroup) -> tuple[Variable, ...]:
    return tuple(variables_of(type(group)))


def display_value(variable: Variable, value: object) -> str:
    """Return a value for display: on one line, of bounded length, without secrets."""
    return MASK if variable.secret and value is not None else display_text(value)


def display_text(value: object) -> str:
    """Return any value on one line, of bounded length, without what looks like a secret."""
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    text = redact(str(value))
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

_used: set[str] = set()


def from_env(variable: str, default: T) -> FromEnv[T]:
    """Take an option of a job type or cycle from an environment variable; unset or empty, the default counts.

    The variable is read now, once, and its value checked where the option is used. Raises: ConfigError.
    """
    if not _NAME.fullmatch(variable):
        raise ConfigError(
            f"{variable[:60]!r} is not the name of an environment variable",
            help="use letters, digits and underscores, as in PDF_RENDER_CONCURRENCY",
        )
    _used.add(variable)
    return FromEnv(variable, default, os.environ.get(variable, "").strip() or None)


def unknown_variables(settings: Settings) -> list[UnknownVariable]:
    """Return the warnings about names that are neither a setting nor used by the application."""
    return [each for each in settings.warnings if each.message.split()[0] not in _used]


def effective_options(owners: Iterable[JobType | CycleSpec]) -> list[Effective]:
    """Return the options that job types and cycles take from the environment, with value and origin."""
    return [
        Effective(
            given.variable,
            display_text(given.default if given.text is None else given.text),
            f"{given.origin}: {option} of {owner.name}",
        )
        for owner in owners
        for option, given in owner.variables.items()
    ]
