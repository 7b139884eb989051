"""What a change came to, told on the page after it. Only numbers and known words come from the address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.web.pages.template_filters import count

_DIGITS = 7

_DEEDS = {
    "retry": "taken back into the queue",
    "redrive": "taken back into the queue",
    "cancel": "cancelled",
    "run_now": "made due now",
    "drop": "dropped",
    "delete": "deleted",
    "remove": "removed",
    "pause": "paused",
    "resume": "resumed",
    "drain": "asked to drain",
}


class Told(NamedTuple):
    """A sentence and its tone."""

    sentence: str
    tone: str


def told(query: Mapping[str, str]) -> Told | None:
    """Say what was done, if the address says that something was."""
    deed = _DEEDS.get(query.get("done", ""))
    if deed is None:
        return None
    moved, left = _number(query, "moved"), _number(query, "left")
    sentence = f"{count(moved)} {deed}"
    if left:
        sentence = f"{sentence}; {count(left)} left alone, because they were in another state"
    more = query.get("more") == "yes"
    if more:
        sentence = f"{sentence}; there are more than one command takes, so do it again for the next"
    return Told(sentence, "warn" if left or more or not moved else "good")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0
