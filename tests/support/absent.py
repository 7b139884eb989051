"""Skips that nobody overlooks: what a machine lacks is named again at the end of the run."""

import os
from typing import NoReturn

import pytest

PREFIX = "ABSENT: "


def skip_because_absent(what: str, fix: str) -> NoReturn:
    """Skip the test and have the run's summary say what was absent and how to get it."""
    pytest.skip(f"{PREFIX}{what}. {fix}")


def skip_without_fork() -> None:
    """Skip the test on a system whose processes cannot fork."""
    if not hasattr(os, "fork"):
        skip_because_absent("fork", "Run the tests on Linux or macOS")


def report_absent(reporter: pytest.TerminalReporter) -> None:
    """Write each absence once, with the number of tests it cost."""
    counts: dict[str, int] = {}
    for report in reporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _, found, text = reason.partition(PREFIX)
        if found:
            counts[text] = counts.get(text, 0) + 1
    if not counts:
        return
    reporter.section("NOT TESTED on this machine", sep="!", red=True, bold=True)
    for text, count in sorted(counts.items()):
        reporter.line(f"{text} ({count} tests skipped)", red=True)
