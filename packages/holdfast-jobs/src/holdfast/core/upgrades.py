"""Inputs of earlier versions: functions that bring a stored input up to date, one version at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.core.codec import TypeCodec, encode_any
from holdfast.core.errors import (
    HandlerInvalid,
    InputInvalid,
    InputUnreadable,
    InvalidOption,
    words_of,
)
from holdfast.core.signatures import check_call, is_async, name_of, parameter_type

NEWEST_VERSION = 32_767
"""What the database's column holds."""


class Upgrade(msgspec.Struct, frozen=True):
    """A function from an input of one version to an input of the next, and how to read what it takes."""

    function: Callable[[Any], Any]
    takes: TypeCodec


Upgrades = Mapping[int, Upgrade]
"""By the version they begin with."""


def upgrade_of(function: Callable[[Any], Any]) -> Upgrade:
    """Read an upgrade function: what its parameter is annotated with is what it gets. Raises: HandlerInvalid."""
    check_call(function, "input")
    if is_async(function):
        raise HandlerInvalid(
            f"{name_of(function)} is async, which an upgrade cannot be",
            help="compute the new input from the old one alone; look things up in the handler",
        )
    return Upgrade(function, TypeCodec(parameter_type(function)))


def check_version(version: object) -> int:
    """Return a version of an input. Raises: InvalidOption."""
    if type(version) is not int or not 1 <= version <= NEWEST_VERSION:
        raise InvalidOption(
            f"version={repr(version)[:60]} is not a whole number from 1 to {NEWEST_VERSION}"
        )
    return version


def upgrade_input(text: str, stored: int, current: int, upgrades: Upgrades) -> str:
    """Return an input of the stored version as one of the current version. Raises: InputUnreadable."""
    if stored > current:
        raise InputUnreadable(
            f"the input has version {stored}, but this code reads versions up to {current}",
            help="deploy the newer code to the workers too, ideally before it starts jobs",
        )
    for version in range(stored, current):
        step = upgrades.get(version)
        if step is None:
            raise InputUnreadable(
                f"the input has version {stored}, and nothing upgrades version {version} to {version + 1}",
                help=f"register a function with @app.upgrade(…, from_={version})",
            )
        text = _one_step(text, version, step)
    return text


def upgrade_result(text: str, upgrade: Upgrade) -> str:
    """Return a recorded result of a step as one of the present code. Raises: InputUnreadable."""
    return _one_step(text, 1, upgrade)


def _one_step(text: str, version: int, step: Upgrade) -> str:
    try:
        return encode_any(step.function(step.takes.decode(text)))
    except InputInvalid as error:
        raise InputUnreadable(
            f"the upgrade from version {version}: {error.message}", path=error.path
        ) from error
    except Exception as error:
        # A bug in an upgrade is fixed by the next deploy, so the job waits for that as well.
        kind = type(error).__name__
        raise InputUnreadable(
            f"the upgrade from version {version} raised {kind}: {words_of(error)}"
        ) from error
