"""The laws of rows: what holds in every committed state, so that a row that breaks one is evidence of a fault.

Each law is one statement, and so sees the database at one moment, beside running workers and producers. A fault may be
ours, a restore's, a disk's, or that of someone who changed the tables by SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.storage.operation import Op
from holdfast.storage.store.params import fetch

MAX_BREACHES = 20


class Law(msgspec.Struct, frozen=True):
    """What must hold, and the statement that finds what breaks it."""

    name: str
    text: str

    @property
    def statement(self) -> str:
        """The name of its statement."""
        return f"verify_{self.name.replace('-', '_')}"


LAWS: Sequence[Law] = (
    Law("one-state", "A job is in the queue or has ended: never both, never neither."),
    Law("no-orphans", "Every row about a job belongs to a job that exists."),
    Law("unbroken-chains", "The jobs of a chain are numbered without gap or fork."),
    Law("linked-chains", "All jobs of a chain but the last have completed and continued it."),
    Law("held-by-a-lease", "A claimed job bears the token of a lease, so that it can expire."),
    Law(
        "permits-are-recorded",
        "A claimed job of a limited partition is among those that it let in.",
    ),
    Law("limits-hold", "No more jobs run at once, and none that cost more, than a limit lets in."),
    Law("fences-grow", "No row has a higher fence than its job, and no claim one below its time."),
    Law("blocked-by-something", "A blocked job waits for an open chain or a durable wait."),
    Law(
        "waits-are-kept", "A job that waits for a chain is not claimed and not due before it ends."
    ),
    Law("ends-are-noticed", "No job waits for a chain that has ended."),
    Law("tallies-agree", "The counts of a type are those of its rows."),
    Law(
        "keys-have-chains",
        "A key that deduplicates belongs to a chain, or to one that was removed.",
    ),
    Law("readers-within-the-log", "No reader is beyond the end of its line."),
)


class Breach(msgspec.Struct, frozen=True):
    """What breaks a law: a job, chain, key or reader, and how."""

    subject: str
    text: str


class LawVerdict(msgspec.Struct, frozen=True):
    """A law and what was found to break it, in the order of their ids: not all of it if it `has_more`."""

    law: Law
    breaches: Sequence[Breach]
    has_more: bool = False


def judge(law: Law, breaches: Sequence[Breach], limit: int) -> LawVerdict:
    """Return the verdict on a law, by what was found of one row more than the limit."""
    return LawVerdict(law, breaches[:limit], len(breaches) > limit)


def check_law(law: Law, limit: int = MAX_BREACHES) -> Op[LawVerdict]:
    """Look for what breaks a law. One statement that reads whole tables."""
    breaches = yield from fetch(Breach, law.statement, limit=limit + 1)
    return judge(law, breaches, limit)


def check_laws(laws: Sequence[Law] = LAWS, limit: int = MAX_BREACHES) -> Op[list[LawVerdict]]:
    """Look for what breaks any of the laws."""
    found = []
    for law in laws:
        found.append((yield from check_law(law, limit)))
    return found
