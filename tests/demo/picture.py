"""Makes the README's picture of the demo: python -m tests.demo.picture [FILE].

A real shop is opened in a folder of its own, its worker is killed in the middle of payments, and what the terminal
shows is drawn when the killed worker's jobs have been taken back.
"""

import io
import os
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from holdfast.cli.orphan_guard import OrphanGuard
from holdfast_demo.command import PORT
from holdfast_demo.demo_database import open_demo_database

DEFAULT = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"
WIDTH = 100
ORDERS = 400
RATE = 15.0
LEASE_MS = 15_000

# Whoever looks at the picture should not ask a third party for a font.
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def draw() -> str:
    """Run the shop and return its screen as SVG."""
    with OrphanGuard() as guard, open_demo_database(None, False, True, guard) as database:
        os.environ["SHOP_URL"] = database.url
        # The shop's module reads its address when it is imported.
        from holdfast_demo.demo import Demo
        from holdfast_demo.screen import Keyboard, Screen
        from holdfast_demo.story import DemoOptions, Story

        said, console = io.StringIO(), Console(width=WIDTH, record=True, file=io.StringIO())
        drawn: list[Group] = []

        class Drawn(Demo):
            def _show(self, story: Story) -> None:
                screen = Screen(story, Keyboard(sys.stdin.fileno()), console)
                while not drawn:
                    story.step()
                    if story.recovered:
                        drawn.append(screen.render())
                    elif not story.recoveries and story.figures.ledger.in_payment > 2:
                        story.kill()

        options = DemoOptions(ORDERS, RATE, False, False, LEASE_MS, False, PORT)
        with redirect_stdout(said):
            Drawn(options, database, guard).run()
    opening = said.getvalue().partition("  stopping")[0].rstrip()
    head = Text(f"$ holdfast demo --orders {ORDERS} --rate {RATE:.0f}\n{opening}")
    head.highlight_words(["✓"], "green")
    head.highlight_regex(r"http://\S+", "cyan")
    console.print(head, drawn[0])
    svg = console.export_svg(title="holdfast demo", unique_id="demo")
    return _FONT.sub("", svg)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        picture = draw()
    target.write_text(picture, encoding="utf-8")
    print(target)
