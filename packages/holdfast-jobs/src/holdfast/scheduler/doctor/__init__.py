"""`holdfast doctor`: checks of an installation, and what they find."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """One check's result; `fix` is the command or setting that fixes it."""

    check: str
    verdict: Verdict
    measured: str
    text: str = ""
    fix: str = ""


def ok(check: str, measured: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(check, "ok", measured)


def warning(check: str, measured: str, text: str, fix: str) -> Finding:
    """Return a finding that is worth attention."""
    return Finding(check, "warning", measured, text, fix)


def problem(check: str, measured: str, text: str, fix: str) -> Finding:
    """Return a finding that something does not work, or soon will not."""
    return Finding(check, "problem", measured, text, fix)
