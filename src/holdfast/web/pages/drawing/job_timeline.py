"""Where a job's time went, as one bar: waited, blocked, ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup

from holdfast.core.duration import spoken
from holdfast.core.records import Instant
from holdfast.web.pages.drawing.svg import rect, stretched
from holdfast.web.pages.template_filters import instant_of

WIDTH, HEIGHT = 640, 14
_LEAST = 2.0


class Part(msgspec.Struct, frozen=True):
    """A stretch of a job's life."""

    kind: str
    word: str
    us: int

    @property
    def span(self) -> str:
        """How long it was."""
        return spoken(self.us)


class Life(msgspec.Struct, frozen=True):
    """A job's time in parts, and drawn."""

    total: str
    parts: Sequence[Part]
    bar: Markup


def life_of(job: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]], now: Instant) -> Life:
    """Say where a job's time went until its end, or until now."""
    begun = instant_of(job["created_at"])
    end = instant_of(job["finished_at"]) if job["finished_at"] else now
    ran = sum(map(_ran, attempts))
    if job["started_at"] and job["state"] in ("running", "completed"):
        ran += max(0, end - instant_of(job["started_at"]))
    total = max(0, end - begun)
    ran = min(ran, total)
    kind, word = ("blocked", "blocked") if job["state"] == "blocked" else ("waited", "waited")
    parts = [
        each for each in (Part(kind, word, total - ran), Part("running", "ran", ran)) if each.us
    ]
    return Life(spoken(total), parts, _bar(parts, total))


def _ran(attempt: Mapping[str, Any]) -> int:
    if attempt["started_at"] is None:
        return 0
    return max(0, instant_of(attempt["ended_at"]) - instant_of(attempt["started_at"]))


def _bar(parts: Sequence[Part], total: int) -> Markup:
    boxes, x = [], 0.0
    for each in parts:
        width = max(_LEAST, each.us / total * WIDTH) if total else 0
        boxes.append(rect(x, 0, width, HEIGHT, each.kind, f"{each.word} {each.span}"))
        x += width
    label = ", ".join(f"{each.word} {each.span}" for each in parts) or "no time yet"
    return stretched(WIDTH, HEIGHT, label, boxes)
