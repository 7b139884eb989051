"""A user's application in a campaign: which of its job types are started, with which inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from holdfast.app import Holdfast
from holdfast.cli.session import load_app
from holdfast.core.errors import CommandUsage, PayloadError
from holdfast.core.registry import JobType
from holdfast_chaos.errors import CampaignInputMissing


def name_database(url: str | None) -> None:
    """Have an application that reads HOLDFAST_URL find something, as its types are only read here."""
    os.environ.setdefault("HOLDFAST_URL", url or "sqlite:///:memory:")


def choose_starts(spec: str, inputs: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the job types to start with their inputs: those given as TYPE=JSON, else all that need no input.

    Raises: AppNotLoaded, CommandUsage, UnknownJobType, InputInvalid, CampaignInputMissing.
    """
    app = load_app(spec)
    if inputs:
        given = [_parse(each) for each in inputs]
        for name, value in given:
            app.targets.encode(app.targets.entry(name), value)
        return given
    entries = [each.name for each in app.registry if _can_begin(each)]
    found: list[tuple[str, Any]] = [(name, None) for name in entries if _needs_nothing(app, name)]
    if not found:
        raise CampaignInputMissing(
            f"no job type of {spec} can be started without an input",
            details=[f"--input '{name}=…'" for name in entries],
        )
    return found


def name_unstarted(spec: str, starts: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the job types that could begin a chain and are not started, in their order."""
    started = {name for name, _ in starts}
    return [
        each.name
        for each in load_app(spec).registry
        if _can_begin(each) and each.name not in started
    ]


def longest_lease_s(spec: str, lease_s: float) -> float:
    """Return for how long a worker may hold a job of this application: a pause has to outlast it."""
    declared = [each.lease.duration_ms / 1_000 for each in load_app(spec).registry if each.lease]
    return max([lease_s, *declared])


def _parse(text: str) -> tuple[str, Any]:
    name, is_given, value = text.partition("=")
    try:
        return name, json.loads(value) if is_given else None
    except ValueError as error:
        raise CommandUsage(
            f"--input {name[:40]}=… is not JSON: {error}",
            help='quote it for your shell: --input \'mail.send={"to": "ann"}\'',
        ) from None


def _can_begin(each: JobType) -> bool:
    return each.entry and each.event is None


def _needs_nothing(app: Holdfast, name: str) -> bool:
    try:
        app.targets.encode(app.targets.entry(name), None)
    except PayloadError:
        return False
    return True
