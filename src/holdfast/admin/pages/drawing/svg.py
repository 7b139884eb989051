"""The few elements that pictures are made of."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

_END = Markup("</svg>")


def picture(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """Put parts together into a picture of its own size, which is read out as its label."""
    head = Markup('<svg class="drawing" viewBox="0 0 {} {}" width="{}" height="{}" role="img">')
    sizes = (_n(width), _n(height))
    return _joined(head.format(*sizes, *sizes), label, parts)


def stretched(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """Put parts together into a picture that fills its box; it should contain no words."""
    head = Markup('<svg class="drawing" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img">')
    return _joined(head.format(_n(width), _n(height)), label, parts)


def _joined(head: Markup, label: str, parts: Iterable[Markup]) -> Markup:
    return Markup("").join([head, Markup("<title>{}</title>").format(label), *parts, _END])


def rect(
    x: float, y: float, width: float, height: float, kind: str, title: str = "", radius: float = 0
) -> Markup:
    """Draw a box of one kind; its title shows when it is pointed at."""
    inner = Markup("<title>{}</title>").format(title) if title else ""
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}">{}</rect>').format(
        kind, _n(x), _n(y), _n(width), _n(height), _n(radius), inner
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    """Draw a straight line."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
        kind, _n(x1), _n(y1), _n(x2), _n(y2)
    )


def path(steps: str, kind: str) -> Markup:
    """Draw a path."""
    return Markup('<path class="{}" d="{}"/>').format(kind, steps)


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> Markup:
    """Write words."""
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
        _n(x), _n(y), anchor, kind, words
    )


def dot(x: float, y: float, radius: float, kind: str) -> Markup:
    """Draw a filled circle."""
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(
        kind, _n(x), _n(y), _n(radius)
    )


def link(href: str, title: str, kind: str, parts: Iterable[Markup]) -> Markup:
    """Make parts a link."""
    inside = Markup("").join([Markup("<title>{}</title>").format(title), *parts])
    return Markup('<a href="{}" class="{}">{}</a>').format(href, kind, inside)


def number(value: float) -> str:
    """Write a coordinate without needless digits."""
    return _n(value)


def _n(value: float) -> str:
    return str(escape(f"{value:.1f}".rstrip("0").rstrip(".")))
