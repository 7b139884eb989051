"""Instants as pages show them."""

from collections.abc import Callable

import pytest

from holdfast_dashboard import templates
from holdfast_dashboard.templates import instant_of

NOON = "2026-01-31T12:00:00.000000Z"
NOON_MS = 1769860800000
LATER = instant_of("2026-01-31T12:03:20.500000Z")


def test_a_span_is_shown_with_its_instant_and_what_a_script_counts_from() -> None:
    counting = (
        f'<time class="nowrap" datetime="{NOON}" title="{NOON}" data-since="{NOON_MS}">3 min</time>'
    )
    assert templates.since(NOON, LATER) == counting
    assert templates.ago(NOON, LATER) == f'<span class="nowrap">{counting} ago</span>'
    assert templates.until(NOON, LATER - 230_500_000) == (
        f'<time class="nowrap" datetime="{NOON}" title="{NOON}" data-until="{NOON_MS}">30 s</time>'
    )


def test_what_has_passed_is_no_time_away() -> None:
    assert ">0 ms<" in templates.until(NOON, LATER)


@pytest.mark.parametrize("show", [templates.ago, templates.since, templates.until])
@pytest.mark.parametrize("text", [None, ""])
def test_what_never_was_is_a_dash(show: Callable[[str | None, int], str], text: str | None) -> None:
    assert show(text, LATER) == '<span class="zero">–</span>'
