"""Options of job types and cycles that an application takes from environment variables of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TypeVar

from holdfast.core.cycle import CycleSpec
from holdfast.core.env_options import FromEnv
from holdfast.core.errors import ConfigError, UnknownVariable
from holdfast.core.registry import JobType
from holdfast.settings.definitions import Settings
from holdfast.settings.load import Effective, display_text

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
