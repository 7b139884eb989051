"""A process that starts chains and publishes events until SIGTERM: `python -m holdfast_chaos.producer OPTIONS`.

What it is not sure about is started again with the same ids, until it is acknowledged; events are published anew with
each try. Some transactions are rolled back on purpose.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.client.start_plan import Start
from holdfast.core.errors import HoldfastError
from holdfast_chaos.event_log import KEYS, publish_events, refuse_events
from holdfast_chaos.journal import (
    EventsAcked,
    EventsUndone,
    Journal,
    PublishedEvent,
    StartsAcked,
    StartsUndone,
    now,
)
from holdfast_chaos.subject import SubjectWork, make_subject, read_options

UNDONE_SHARE = 0.1
MAX_TOGETHER = 8
MAX_CHAIN = 4
MAX_EVENTS = 12
REPEAT_S = 0.25
LONG_SHARE = 0.02
"""How many of our own jobs outlive their lease, and live from its renewal."""

OWN_TYPES = ("chaos.plain", "chaos.effect", "chaos.thread", "chaos.atomic")


class ProducerOptions(msgspec.Struct, frozen=True):
    """What a producer is told: its seed, its rate, and what it starts if those are not our own types."""

    seed: int
    per_second: float
    starts: list[tuple[str, Any]] = []


class UndoOnPurpose(Exception):
    """Raised to roll a transaction back."""


class SteadyProducer:
    """Starts chains and publishes events, a few in each transaction."""

    def __init__(self, app: Holdfast, journal: Journal, options: ProducerOptions) -> None:
        told = read_options()
        self._app = app
        self._journal = journal
        self._options = options
        self._random = random.Random(options.seed)
        self._long_ms = int(told.lease_ms * 1.5)
        self._max_events = 0 if refuse_events(told.app) else MAX_EVENTS
        self._published: list[PublishedEvent] = []
        self._is_ended = threading.Event()

    def end(self, *_: object) -> None:
        """Start nothing more."""
        self._is_ended.set()

    def run(self) -> None:
        """Start chains until told to end."""
        due = time.monotonic()
        while not self._is_ended.is_set():
            starts = [self._make_start() for _ in range(self._random.randint(1, MAX_TOGETHER))]
            lengths = {str(each.options["id"]): length for each, length in starts}
            plan = [each for each, _ in starts]
            if self._random.random() < UNDONE_SHARE:
                self._undo(plan)
            else:
                self._start(plan, lengths)
            count = sum(length or 1 for length in lengths.values())
            due = max(due + count / self._options.per_second, time.monotonic() - 1)
            self._is_ended.wait(max(0.0, due - time.monotonic()))

    def _make_start(self) -> tuple[Start, int]:
        """Return a start and how many jobs its chain is to have, 0 if only its handlers know."""
        id = self._app.new_id()
        if self._options.starts:
            type, input = self._random.choice(self._options.starts)
            return Start(type, input, id=id), 0
        first, *others = self._random.choices(OWN_TYPES, k=self._random.randint(1, MAX_CHAIN))
        is_long = self._random.random() < LONG_SHARE
        ms = self._long_ms if is_long else self._random.randint(1, 40)
        return Start(first, SubjectWork(ms, others), id=id), 1 + len(others)

    def _start(self, starts: list[Start], lengths: dict[str, int]) -> None:
        """Start chains and note that, however often it takes; unless told to end before it is known."""

        def write() -> None:
            with self._app.transaction() as tx:
                self._app.start_all(tx, starts)
                self._publish(tx)

        if self._repeat(write):
            self._journal.write(StartsAcked(now(), lengths))
            if self._published:
                self._journal.write(EventsAcked(now(), self._published))

    def _undo(self, starts: list[Start]) -> None:
        """Start chains and roll back."""

        def write() -> None:
            try:
                with self._app.transaction() as tx:
                    self._app.start_all(tx, starts)
                    self._publish(tx)
                    raise UndoOnPurpose
            except UndoOnPurpose:
                pass

        if self._repeat(write):
            ids = [str(each.options["id"]) for each in starts]
            self._journal.write(StartsUndone(now(), ids))
            if self._published:
                self._journal.write(EventsUndone(now(), [each.tag for each in self._published]))

    def _publish(self, tx: Any) -> None:
        """Publish events of some keys; those of the last try are remembered."""
        count = self._random.randint(0, self._max_events)
        keys = [f"k{each}" for each in self._random.sample(range(KEYS), count)]
        self._published = publish_events(self._app, tx, keys)

    def _repeat(self, write: Callable[[], None]) -> bool:
        while not self._is_ended.is_set():
            try:
                write()
            except HoldfastError:
                # Whether it was committed is not known, and with the same ids it does not matter.
                self._is_ended.wait(REPEAT_S)
            else:
                return True
        return False


def main(text: str) -> None:
    """Run until SIGTERM."""
    told = read_options()
    app = make_subject(told)
    journal = Journal(Path(told.journals), told.actor)
    producer = SteadyProducer(app, journal, msgspec.json.decode(text, type=ProducerOptions))
    signal.signal(signal.SIGTERM, producer.end)
    producer.run()
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])
