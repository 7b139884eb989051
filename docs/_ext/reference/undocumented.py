"""The error that ends a build when something has no words."""

from __future__ import annotations

from collections.abc import Iterable


class Undocumented(Exception):
    """Something that people use has no text."""


def require(what: str, missing: Iterable[str]) -> None:
    """Refuse when anything is missing. Raises: Undocumented, with all of it."""
    names = sorted(missing)
    if names:
        raise Undocumented(f"{what}: {', '.join(names)}")
