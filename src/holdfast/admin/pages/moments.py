"""Instants as pages show them: a span that a script keeps counting, with the instant itself for whoever points at it.

Filters rather than macros: a page is drawn every second and has many of them.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from holdfast.admin.pages.words import instant_of
from holdfast.core.duration import spoken
from holdfast.core.model import Instant

_NEVER = Markup('<span class="zero">–</span>')


def ago(text: str | None, now: Instant) -> Markup:
    """Show how long ago an instant was, and say so."""
    if not text:
        return _NEVER
    instant, at = instant_of(text), escape(text)
    counted = f'<time datetime="{at}" data-since="{instant // 1000}">{spoken(now - instant)}</time>'
    return Markup(f'<span class="nowrap" title="{at}">{counted} ago</span>')


def since(text: str | None, now: Instant) -> Markup:
    """Show how long ago an instant was."""
    if not text:
        return _NEVER
    instant = instant_of(text)
    return _counted(text, f'data-since="{instant // 1000}"', now - instant)


def until(text: str | None, now: Instant) -> Markup:
    """Show how far ahead an instant is; one that has passed is no time away."""
    if not text:
        return _NEVER
    instant = instant_of(text)
    return _counted(text, f'data-until="{instant // 1000}"', instant - now)


def _counted(text: str, mark: str, span: int) -> Markup:
    at = escape(text)
    return Markup(f'<time class="nowrap" datetime="{at}" title="{at}" {mark}>{spoken(span)}</time>')
