"""The live view of a campaign in a terminal: how far it is, what is broken right now, and what was."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast_chaos.campaign import Campaign
from holdfast_chaos.journal import now

BARS = " ▁▂▃▄▅▆▇█"
REFRESH_S = 0.25
SHOWN_SAMPLES = 60
SHOWN_FAULTS = 6


def draw_rates(rates: list[float]) -> str:
    """Return rates as a line of bars, the highest full."""
    highest = max([*rates, 1.0])
    return "".join(BARS[round(max(0.0, each) / highest * (len(BARS) - 1))] for each in rates)


class CampaignView:
    """What is drawn of a campaign."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign

    def __rich__(self) -> Group:
        return Group(self._headline(), self._rates(), self._faults(), self._recent())

    def _headline(self) -> Text:
        campaign = self._campaign
        passed = min(campaign.plan.seconds, now() - campaign.began_at) if campaign.began_at else 0.0
        line = Text(f"seed {campaign.plan.seed}  ", style="bold")
        line.append(f"{campaign.phase}  {passed:.0f}/{campaign.plan.seconds:.0f} s", style="cyan")
        return line

    def _rates(self) -> Text:
        samples = self._campaign.samples[-SHOWN_SAMPLES:]
        rates = [
            (late.ended - early.ended) / (late.at - early.at)
            if early.ended is not None and late.ended is not None
            else 0.0
            for early, late in pairwise(samples)
        ]
        known = [each for each in samples if each.ended is not None]
        text = Text("jobs  ")
        text.append(draw_rates(rates), style="green")
        if known:
            text.append(f"  {known[-1].ended:,} ended, {known[-1].open:,} open")
            if self._campaign.has_events:
                text.append(f"\nevents  {known[-1].taken:,} taken, {known[-1].behind:,} behind")
        return text

    def _faults(self) -> Table:
        counts = Counter(each.kind for each in self._campaign.history if each.is_injected)
        active = Counter(each.plan.kind for each in list(self._campaign.active.values()))
        table = Table.grid(padding=(0, 2))
        for kind in self._campaign.kinds:
            now_text = Text("●" * active[kind], style="red")
            table.add_row(kind, str(counts[kind]), now_text)
        return table

    def _recent(self) -> Group:
        recent = self._campaign.history[-SHOWN_FAULTS:]
        return Group(
            *(
                Text(
                    f"{each.name} {each.actor or 'database'} {each.ended_at - each.began_at:.1f} s",
                    style="bright_black",
                )
                for each in recent
            )
        )


@contextmanager
def show_campaign(campaign: Campaign) -> Iterator[None]:
    """Draw a campaign on stderr while the block runs, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    is_over = threading.Event()
    live = Live(CampaignView(campaign), console=console, auto_refresh=False, transient=True)

    def draw() -> None:
        with suppress(OSError):
            while not is_over.wait(REFRESH_S):
                live.refresh()

    thread = threading.Thread(target=draw, name="chaos-view", daemon=True)
    live.start()
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        # A terminal that was closed takes nothing more.
        with suppress(OSError):
            live.stop()
