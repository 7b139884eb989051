"""Where values come from: arguments, the environment and a TOML file, brought to the same shape."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import ConfigError

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
