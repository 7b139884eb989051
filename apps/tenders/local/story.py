"""What happens: sources fail and list tenders, a worker is killed and replaced, and the books are checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from apps.harness.books import Fault
from apps.harness.command import LocalProcesses
from apps.harness.narrator import Narrator
from apps.tenders.local.archive_story import ArchiveStory
from apps.tenders.local.books import Books, Progress, read_progress
from apps.tenders.local.push_server import PushServer
from apps.tenders.local.push_server import slow as slow_push
from apps.tenders.local.source_server import SourceFaults, SourceServer
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from holdfast import Holdfast
from holdfast.errors import WrongState
from tenders.generated import generate_tender
from tenders.models import Delivery
from tenders.sources.found import FoundTender

PATIENCE_S = 120.0
SLOW_S = 1.0
"""How long the push service takes while a worker is to be killed: several looks, and less than a lease."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the story is asked to do."""

    tenders: int
    kill: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """The running application and what is around it."""

    processes: LocalProcesses
    sources: SourceServer
    push: PushServer
    push_log: Path
    bucket: Path
    engine: Engine
    jobs: Holdfast
    say: Callable[[str], None]


class Story:
    """Tells what happens line by line; `play` returns whether every device got its push."""

    def __init__(self, plan: Plan, scene: Scene) -> None:
        """Take what is to be done, and where."""
        self._plan = plan
        self._scene = scene
        self.narrator = Narrator(scene.processes, scene.say)
        self._listed: list[FoundTender] = []
        self._kill_pending = plan.kill
        self.seconds = 0.0
        """From the first list to the last receipt."""

    def play(self) -> bool:
        """List, follow, kill, list more, let the night pass, check."""
        started = time.monotonic()
        half = self._plan.tenders // 2
        self._scene.sources.api_faults = SourceFaults(status=503)
        self._list(range(half))
        self._scene.say(f"the pages list {half} tenders; the API is down")
        self._follow()
        self._scene.sources.api_faults = SourceFaults()
        self._list(range(half, self._plan.tenders))
        self._scene.say(f"the API is back, and both list {self._plan.tenders - half} more")
        self._follow()
        self.seconds = time.monotonic() - started
        nights = ArchiveStory(
            self._scene.jobs, self._scene.engine, self._scene.bucket, self._scene.say
        )
        nights.play()
        return self._check(nights.faults)

    def _list(self, numbers: Sequence[int]) -> None:
        """Have the sources list more tenders, each in part; together they know everything."""
        now = datetime.now(UTC)
        new = [generate_tender(each, now.replace(second=0, microsecond=0)) for each in numbers]
        is_api_down = self._scene.sources.api_faults.is_broken
        for place, tender in enumerate(new):
            on_page = replace(tender, description=None, sources=("pages",))
            if is_api_down or place % 3:
                self._scene.sources.pages.insert(0, on_page)
            if not is_api_down:
                # What a page says, the API may leave out, and the other way round.
                half = replace(tender, region=None, amount=None)
                self._scene.sources.api.append(half if place % 3 else tender)
        self._listed += new

    def _follow(self) -> None:
        """Watch until everything that is listed has been pushed and confirmed."""
        codes = [each.code for each in self._listed]
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            progress = read_progress(self._scene.engine, codes)
            self.narrator.look(partial(self._figures, progress))
            if self._kill_pending and progress.tenders:
                self._kill()
            self._skip_backoff()
            if progress.tenders == len(codes) and not progress.open:
                return
            self.narrator.pause()
        self._scene.say(f"not everything was delivered within {PATIENCE_S:.0f} s")

    def _kill(self) -> None:
        """Kill a worker that holds deliveries, and start another one; look again later if none does."""
        self._scene.push.fault = slow_push(SLOW_S)
        names = {each.id: each.name for each in self._scene.jobs.workers.list()}
        with Session(self._scene.engine) as session:
            leased = select(Delivery.locked_by).where(Delivery.locked_by.is_not(None))
            holders = Counter(names.get(each or "") for each in session.scalars(leased))
        name, held = next(((name, held) for name, held in holders.items() if name), ("", 0))
        if not held:
            return
        self._scene.processes.kill(name)
        self._scene.push.fault = None
        self._kill_pending = False
        successor = self._scene.processes.start_worker()
        self._scene.say(f"{name} killed (-9) while it held {held} deliveries; {successor} started")

    def _skip_backoff(self) -> None:
        """Let the minutes pass that a push waits after an attempt failed."""
        waiting = self._scene.jobs.jobs.list("type:push.send state:pending attempt>=1", limit=1_000)
        if waiting:
            # One that began in the meantime is not due any more.
            with suppress(WrongState), self._scene.jobs.transaction() as tx:
                self._scene.jobs.jobs.trigger(tx, *(each.id for each in waiting))

    def _figures(self, progress: Progress) -> str:
        states = " · ".join(f"{name} {number}" for name, number in progress.states.items())
        return f"tenders {progress.tenders}/{len(self._listed)} · {states or 'none'}"

    def _check(self, known: Sequence[Fault]) -> bool:
        books = Books(self._scene.engine, self._scene.push_log, self._listed)
        faults = [*known, *books.faults]
        missed = "no worker could be killed while it held deliveries; list more tenders"
        not_killed = missed if self._kill_pending else None
        return self.narrator.close_books(faults, books.summary, not_killed)
