"""The demo's screens: live with figures, notes and keys, or plain lines for logs and pipes."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast_demo.remembered_signals import raise_if_interrupted, sleep_unless_interrupted
from holdfast_demo.story import MORE, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIGURES_S = 1.0
POLL_S = 0.2


class TextScreen:
    """Prints a story line by line."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._figures_due = 0.0

    def run(self) -> None:
        """Follow the story forever, or until it has settled if `exit` was asked for."""
        while True:
            self._story.step()
            self.print_news()
            if self._story.options.exit and self._story.is_settled:
                return
            sleep_unless_interrupted(POLL_S)

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
        f" · due {story.due} · running {story.running} · blocked {queue.blocked}"
        f" · done {queue.completed} · dead {queue.failed}"
    ]
    for each in story.recoveries:
        lines.append(f"  the leases of {each.name} expire in {each.left_s():.0f} s")
    return lines


_BAR = 28
_NARROW_BAR = 20
_NARROW = 94
_SMALL = 79


class Keyboard:
    """Reads single keys, without Enter and without echo."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, seconds: float) -> str | None:
        """Wait for a key, at most this long."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, seconds))
        if not ready:
            return None
        return os.read(self._descriptor, 1).decode("ascii", "ignore").lower()


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys one by one; the terminal is restored afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Screen:
    """Shows a story and handles keys until `q`."""

    def __init__(self, story: Story, keyboard: Keyboard, console: Console) -> None:
        self._story = story
        self._keyboard = keyboard
        self._console = console
        self._quit = False
        self._keys: Mapping[str, Callable[[], None]] = {
            "k": story.actions["kill"],
            "f": story.actions["gateway"],
            "p": story.actions["pause"],
            "o": story.actions["order"],
            "q": self._request_quit,
        }

    def run(self) -> None:
        """Show the story until `q`, or until it has settled if `exit` was asked for."""
        with Live(console=self._console, auto_refresh=False, redirect_stderr=False) as live:
            while not self._quit:
                self._story.step()
                live.update(self.render(), refresh=True)
                if self._story.options.exit and self._story.is_settled:
                    return
                raise_if_interrupted()
                self._handle_keys(time.monotonic() + POLL_S)

    def render(self) -> Group:
        """Return the screen."""
        story = self._story
        lines = [Text(), self._orders(), self._jobs(), self._recovery_line(), self._cycle(), Text()]
        lines += [Text(f"  {each}") for each in story.notes]
        if story.notes:
            lines.append(Text())
        lines.append(self._help())
        for each in lines:
            # A line that became two would make the screen jump.
            each.no_wrap, each.overflow = True, "ellipsis"
        return Group(*lines)

    @property
    def _is_narrow(self) -> bool:
        return self._console.width < _NARROW

    def _handle_keys(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0 and not self._quit:
            action = self._keys.get(self._keyboard.read(left) or "")
            if action is not None:
                action()
                return

    def _request_quit(self) -> None:
        self._quit = True

    def _orders(self) -> Text:
        story, ledger = self._story, self._story.figures.ledger
        share = ledger.paid / story.total if story.total else 0.0
        bar = _NARROW_BAR if self._is_narrow else _BAR
        full = round(share * bar)
        line = Text("  Orders     ")
        line.append("█" * full, "green").append("░" * (bar - full), "bright_black")
        line.append(f"  {ledger.paid}/{story.total}", "bold")
        line.append(f"    {ledger.per_second:.0f}/s")
        return line.append(f"    p95 wait {story.figures.wait}")

    def _jobs(self) -> Text:
        queue = self._story.figures.queue
        line = Text("  Jobs       ")
        story = self._story
        line.append(f"due {story.due} · running {story.running} · blocked {queue.blocked} · ")
        line.append(f"done {queue.completed} · ")
        line.append(f"dead {queue.failed}", "red" if queue.failed else "")
        if self._story.is_paused:
            line.append(" · paused", "yellow")
        if self._story.gateway_is_down:
            line.append(" · payments fail", "yellow")
        return line

    def _recovery_line(self) -> Text:
        story = self._story
        is_sound = story.figures.lost == 0 and story.figures.ledger.paid_twice == 0
        line = Text(f"  Recovered  {story.recovered} · ")
        line.append(story.verdict(), "green" if is_sound else "bold red")
        for each in story.recoveries:
            line.append(f" · {len(each.held)} held by {each.name}", "yellow")
            line.append(f", lease expires in {each.left_s():.0f} s", "yellow")
        return line

    def _cycle(self) -> Text:
        upcoming = self._story.figures.next_cycle
        return Text(
            "  Next cycle " + (f"{upcoming[0]} in {upcoming[1]:.0f} s" if upcoming else "-")
        )

    def _help(self) -> Text:
        pause = "resume" if self._story.is_paused else "pause"
        gateway = "fix payments" if self._story.gateway_is_down else "make payments fail"
        if self._console.width < _SMALL:
            # A line that is cut off must not lose the way out.
            words = f"[q] quit [k] kill [p] {pause} [f] fail [o] order"
        elif self._is_narrow:
            gateway = "fix payments" if self._story.gateway_is_down else "fail payments"
            words = f"[k] kill worker  [f] {gateway}  [p] {pause}  [o] order {MORE}  [q] quit"
        else:
            words = (
                f"[k] kill -9 the worker   [f] {gateway}   [p] {pause}   [o] order {MORE}   "
                "[q] quit"
            )
        return Text(f"  {words}", "dim")
