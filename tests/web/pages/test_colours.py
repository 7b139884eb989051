"""Colours keep the contrast that WCAG 2.2 AA asks for, in both schemes."""

import re

import pytest

from holdfast_dashboard.templates import STATIC

STATES = ("pending", "running", "blocked", "completed", "failed", "cancelled")
PAIRS = [
    *((f"--{state}", f"--{state}-wash") for state in STATES),
    *((f"--{state}", "--surface") for state in STATES),
    *(("--ink", ground) for ground in ("--ground", "--surface", "--sunken")),
    *(("--ink-soft", ground) for ground in ("--ground", "--surface", "--sunken")),
    *(("--accent", ground) for ground in ("--surface", "--ground", "--accent-wash")),
    ("--accent-ink", "--accent"),
]
LEAST = 4.5

_COLOUR = re.compile(r"(--[a-z-]+): #([0-9a-f]{6});")


def schemes() -> dict[str, dict[str, str]]:
    """The colours of each scheme as the style sheet names them."""
    light, _, dark = (STATIC / "base.css").read_text().partition("prefers-color-scheme: dark")
    bright = dict(_COLOUR.findall(light))
    return {"light": bright, "dark": bright | dict(_COLOUR.findall(dark))}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_texts_are_legible(scheme: str, ink: str, ground: str) -> None:
    colours = schemes()[scheme]
    dim, bright = sorted((luminance(colours[ink]), luminance(colours[ground])))
    assert (bright + 0.05) / (dim + 0.05) >= LEAST
