"""What a check found."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check's result; `fix` is the command or setting that mends it."""

    check: str
    verdict: Verdict
    measured: str
    text: str = ""
    fix: str = ""


def ok(check: str, measured: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", measured)


def warning(check: str, measured: str, text: str, fix: str) -> Finding:
    """Worth a look."""
    return Finding(check, "warning", measured, text, fix)


def problem(check: str, measured: str, text: str, fix: str) -> Finding:
    """Something does not work, or will not for long."""
    return Finding(check, "problem", measured, text, fix)
