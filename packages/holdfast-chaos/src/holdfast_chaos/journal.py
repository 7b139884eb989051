"""What producers, handlers and faults leave outside the database: a file of lines for each process, only appended to.

Times are those of the clock that all processes of a machine share, in seconds. A line is one write: what a process that
is killed has written is there, because it is the process that dies and not the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

SUFFIX = ".journal"


class StartsAcked(msgspec.Struct, frozen=True, tag_field="line", tag="acked"):
    """A commit that a producer was told of: the chains it started, and how many jobs each is to have, 0 if unknown."""

    at: float
    chains: dict[str, int]


class StartsUndone(msgspec.Struct, frozen=True, tag_field="line", tag="undone"):
    """Chains that a producer started and rolled back."""

    at: float
    chains: list[str]


class PublishedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event of the log: what it is called, its key, and the number that its key had."""

    tag: str
    key: str
    n: int


class EventsAcked(msgspec.Struct, frozen=True, tag_field="line", tag="events"):
    """A commit that a producer was told of: the events it published."""

    at: float
    events: list[PublishedEvent]


class EventsUndone(msgspec.Struct, frozen=True, tag_field="line", tag="events_undone"):
    """Tags of events that a producer published and rolled back."""

    at: float
    tags: list[str]


class HandlerBegan(msgspec.Struct, frozen=True, tag_field="line", tag="began"):
    """A handler that was called: by which process, for which claim, made when by the database's clock."""

    at: float
    actor: str
    job: str
    type: str
    attempt: int
    fence: int
    claimed_at: int


class HandlerEnded(msgspec.Struct, frozen=True, tag_field="line", tag="ended"):
    """A handler that returned; what it returned may never have been written."""

    at: float
    actor: str
    job: str
    fence: int


class WriteRefused(msgspec.Struct, frozen=True, tag_field="line", tag="refused"):
    """A write that the database refused, because the lease behind it was lost."""

    at: float
    actor: str
    job: str
    fence: int
    reason: str


class LineRefused(msgspec.Struct, frozen=True, tag_field="line", tag="line_refused"):
    """What a consumer wrote for a line of the log that another process reads by now, and the database refused."""

    at: float
    actor: str
    reader: str
    log_line: int


class WorkerBegan(msgspec.Struct, frozen=True, tag_field="line", tag="worker"):
    """A worker is up, after its start or another one."""

    at: float
    actor: str


class FaultRecord(msgspec.Struct, frozen=True, tag_field="line", tag="fault"):
    """One fault: what was done to which process, or to all of them, and from when to when.

    is_death: its process does nothing more meanwhile, so that others take its jobs over. is_cut_off: its process cannot
    use the database meanwhile. is_outage: nobody can. is_crash: its server died with what it had not written. is_lossy:
    commits may be lost with it, as with an asynchronous primary. is_charged: a second start may be its consequence.
    is_injected: false for what the machine did by itself.
    """

    number: int
    kind: str
    began_at: float
    ended_at: float
    actor: str | None = None
    is_death: bool = False
    is_cut_off: bool = False
    is_outage: bool = False
    is_crash: bool = False
    is_lossy: bool = False
    is_charged: bool = True
    is_injected: bool = True

    @property
    def name(self) -> str:
        """What people call it: by its number, which only what was injected has."""
        return f"#{self.number} {self.kind}" if self.is_injected else self.kind


JournalLine = (
    StartsAcked
    | StartsUndone
    | EventsAcked
    | EventsUndone
    | HandlerBegan
    | HandlerEnded
    | WriteRefused
    | LineRefused
    | WorkerBegan
    | FaultRecord
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalLine] = msgspec.json.Decoder(JournalLine)


class Journal:
    """One process's file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(
            folder / f"{name}{SUFFIX}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )

    def write(self, line: JournalLine) -> None:
        """Append a line."""
        os.write(self._file, _encoder.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def now() -> float:
    """Return the time that all processes of this machine agree on."""
    return time.monotonic()


class History(msgspec.Struct):
    """All that the journals of a campaign say."""

    acked: list[StartsAcked] = []
    undone: list[StartsUndone] = []
    began: list[HandlerBegan] = []
    ended: list[HandlerEnded] = []
    refused: list[WriteRefused] = []
    faults: list[FaultRecord] = []
    events: list[EventsAcked] = []
    events_undone: list[EventsUndone] = []
    lines_refused: list[LineRefused] = []
    workers: list[WorkerBegan] = []

    def add(self, line: JournalLine) -> None:
        """Add a line."""
        getattr(self, _PLACES[type(line)]).append(line)


_PLACES: Mapping[type[JournalLine], str] = {
    StartsAcked: "acked",
    StartsUndone: "undone",
    HandlerBegan: "began",
    HandlerEnded: "ended",
    WriteRefused: "refused",
    FaultRecord: "faults",
    EventsAcked: "events",
    EventsUndone: "events_undone",
    LineRefused: "lines_refused",
    WorkerBegan: "workers",
}


def read_lines(file: Path) -> Iterator[JournalLine]:
    """Read a journal; a last line that was cut short is no line."""
    for line in file.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield _decoder.decode(line)


def read_journals(folder: Path) -> History:
    """Read all journals of a campaign, each kind of line in the order of its times."""
    history = History()
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        for line in read_lines(file):
            history.add(line)
    parts: Sequence[list[StartsAcked] | list[HandlerBegan] | list[HandlerEnded]]
    parts = (history.acked, history.began, history.ended)
    for each in parts:
        each.sort(key=lambda line: line.at)
    history.faults.sort(key=lambda fault: fault.number)
    return history
