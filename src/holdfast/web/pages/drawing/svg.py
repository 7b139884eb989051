"""The few SVG elements that drawings use. Texts are escaped here, numbers need not be."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


def picture(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """Draw a picture of its own size; its role is group, because screen readers skip an image's links."""
    size = f'width="{number(width)}" height="{number(height)}"'
    return _svg(f"{_head(width, height, 'group')} {size}>", label, parts)


def stretched_picture(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """Draw a picture that fills its box; it should contain neither texts nor links."""
    return _svg(f'{_head(width, height, "img")} preserveAspectRatio="none">', label, parts)


def _head(width: float, height: float, role: str) -> str:
    return f'<svg class="drawing" role="{role}" viewBox="0 0 {number(width)} {number(height)}"'


def _svg(head: str, label: str, parts: Iterable[Markup]) -> Markup:
    return Markup("".join((head, _title(label), *parts, "</svg>")))


def rect(
    x: float, y: float, width: float, height: float, kind: str, title: str = "", radius: float = 0
) -> Markup:
    """Draw a box; its title shows on hover."""
    corner = f' rx="{number(radius)}"' if radius else ""
    return Markup(
        f'<rect class="{escape(kind)}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"{corner}>{_title(title)}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    """Draw a straight line."""
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return Markup(f'<line class="{escape(kind)}" {ends}/>')


def path(steps: str, kind: str) -> Markup:
    """Draw a path."""
    return Markup(f'<path class="{escape(kind)}" d="{escape(steps)}"/>')


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> Markup:
    """Draw a text."""
    place = f'x="{number(x)}" y="{number(y)}" text-anchor="{escape(anchor)}"'
    return Markup(f'<text {place} class="{escape(kind)}">{escape(words)}</text>')


def dot(x: float, y: float, radius: float, kind: str) -> Markup:
    """Draw a filled circle."""
    place = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
    return Markup(f'<circle class="{escape(kind)}" {place}/>')


def link(href: str, title: str, kind: str, parts: Iterable[Markup]) -> Markup:
    """Wrap parts in a link."""
    inside = "".join((_title(title), *parts))
    return Markup(f'<a href="{escape(href)}" class="{escape(kind)}">{inside}</a>')


def number(value: float) -> str:
    """Format a coordinate without needless digits."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""
