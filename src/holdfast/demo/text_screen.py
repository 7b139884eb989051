"""The demo as plain lines, for logs and pipes: events when they happen, and figures once a second."""

from __future__ import annotations

import time

import click

from holdfast.demo.story import Story

FIGURES_S = 1.0
POLL_S = 0.2


class TextScreen:
    """Prints a story line by line."""

    def __init__(self, story: Story) -> None:
        """Take the story."""
        self._story = story
        self._figures_due = 0.0

    def run(self) -> None:
        """Follow the story forever, or until it has settled if `exit` was asked for."""
        while True:
            self._story.step()
            self.print_news()
            if self._story.options.exit and self._story.is_settled:
                return
            time.sleep(POLL_S)

    def print_news(self) -> None:
        """Print the figures when they are due, and new notes: the last of them is the outcome."""
        if time.monotonic() >= self._figures_due:
            self._figures_due = time.monotonic() + FIGURES_S
            for line in figure_lines(self._story):
                click.echo(line)
        while self._story.notes:
            click.echo(f"  {self._story.notes.popleft()}")


def figure_lines(story: Story) -> list[str]:
    """Return the figures, and when the leases of killed workers expire."""
    figures = story.figures
    queue, ledger = figures.queue, figures.ledger
    lines = [
        f"  orders {ledger.paid}/{story.total} paid · {ledger.per_second:.0f}/s · p95 wait {figures.wait}"
        f" · due {queue.due} · running {queue.running} · blocked {queue.blocked}"
        f" · done {queue.completed} · dead {queue.failed}"
    ]
    for each in story.recoveries:
        lines.append(f"  the leases of {each.name} expire in {each.left_s():.0f} s")
    return lines
