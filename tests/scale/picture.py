"""Draws what `make scale` measured: python -m tests.scale.picture FIGURES.json docs/images/scale.svg"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WIDTH, BAR, LEFT, FULL = 640, 34, 150, 380
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2933}.bar{fill:#2f6f8f}.goal{stroke:#b4472e;stroke-dasharray:4 4}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.bar{fill:#6fb3d2}.goal{stroke:#e8866f}}"
)


def draw(figures: dict[str, Any], goal: float) -> str:
    """Return the picture: a bar for one database and one for four, and where four should be."""
    one, four = float(figures["one"]), float(figures["four"])
    most = max(four, goal * one)
    rows = [("one database", one), ("four databases", four)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 170" role="img">',
        f"<title>Four databases take and ship {figures['ratio']:.2f} times as many orders as one</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, (name, rate) in enumerate(rows):
        top, length = 24 + number * 50, FULL * rate / most
        parts += [
            f'<text x="{LEFT - 12}" y="{top + 22}" text-anchor="end">{name}</text>',
            f'<rect class="bar" x="{LEFT}" y="{top}" width="{length:.0f}" height="{BAR}" rx="3"/>',
            f'<text x="{LEFT + length + 8:.0f}" y="{top + 22}">{rate:,.0f} orders/s</text>',
        ]
    at = LEFT + FULL * goal * one / most
    checked = (
        f"{figures['orders']:,} orders: {figures['lost']} lost, {figures['doubled']} twice,"
        f" {figures['order_breaks']} out of their key's order"
    )
    parts += [
        f'<line class="goal" x1="{at:.0f}" x2="{at:.0f}" y1="12" y2="118"/>',
        f'<text x="{LEFT}" y="140">{figures["ratio"]:.2f} times; the line is {goal} times one</text>',
        f'<text x="{LEFT}" y="160">{checked}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    from tests.scale.__main__ import GOAL

    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text()), GOAL))
