"""Moves of jobs and chains, chosen by id or by a filter: asked for, made in batches, told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.cli.confirmation import Act, may_go_on
from holdfast.cli.console import count_of, progress, say, warn
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import Column, write_records
from holdfast.cli.selection import Choice
from holdfast.core.errors import ChainError, ChainNotFound, JobNotFound
from holdfast.core.lifecycle import Command

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.core.records import ChainRecord, JobRecord

BATCH = 500

_NAMED = 5
_NOT_FOUND: dict[str, type[ChainError]] = {"job": JobNotFound, "chain": ChainNotFound}
_MOVED_COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("type", lambda row: row["type"]),
    Column("was", lambda row: row["was"]),
)


R = TypeVar("R", bound="JobRecord | ChainRecord")


@dataclass(frozen=True, slots=True)
class Move:
    """A move in words: what is asked for, what was done, and to what."""

    command: Command
    done: str
    noun: str
    columns: Sequence[Column]

    @property
    def verb(self) -> str:
        """What is about to be done."""
        return self.command.verb

    def allows(self, each: JobRecord | ChainRecord) -> bool:
        """Whether the move can be made from the state that something is in."""
        return each.state in self.command.states


def move(
    session: Session,
    choice: Choice[R],
    act: Act,
    kind: Move,
    make: Callable[[Session, Sequence[str], Act], Iterable[str]],
) -> int:
    """Move what was chosen in batches; `make` returns the ids that moved. Return the exit code.

    Raises: JobNotFound, ChainNotFound or WrongState when ids were named and none can be moved;
    NotConfirmed.
    """
    able = [each for each in choice.found if kind.allows(each)]
    unable = [each for each in choice.found if not kind.allows(each)]
    if not choice.by_filter and not able:
        raise _impossible(choice, unable, kind)
    shown = [_shown(each) for each in able]
    many, more = choice.by_filter, choice.more
    if not may_go_on(act, kind.verb, kind.noun, shown, kind.columns, many=many, more=more):
        return Exit.OK
    moved: set[str] = set()
    for batch in progress([each.id for each in able], BATCH, kind.verb):
        moved.update(_made(session, batch, act, make, alone=len(choice.found) == 1))
    rows = [_row(each) for each in able if each.id in moved]
    write_records(rows, _MOVED_COLUMNS, act.output)
    say(f"{kind.done} {count_of(len(moved), kind.noun)}")
    left = [*unable, *(each for each in able if each.id not in moved)]
    return _tell_rest(left, choice.missing, kind.noun)


def _made(
    session: Session,
    batch: Sequence[str],
    act: Act,
    make: Callable[[Session, Sequence[str], Act], Iterable[str]],
    alone: bool,
) -> Iterable[str]:
    try:
        return make(session, batch, act)
    except ChainError:
        # All of a batch changed meanwhile, or others wait for them; which ones is told at the end.
        if alone:
            raise
        return ()


def _tell_rest(left: Sequence[JobRecord | ChainRecord], missing: Sequence[str], noun: str) -> int:
    for each in left[:_NAMED]:
        warn(f"{noun} {each.id} was skipped: it is {each.state}, or changed meanwhile")
    for id in missing[:_NAMED]:
        warn(f"there is no {noun} {id}")
    return Exit.PARTLY if left or missing else Exit.OK


def _shown(each: JobRecord | ChainRecord) -> dict[str, Any]:
    from holdfast.admin.serializers import shown_chain, shown_job
    from holdfast.core.records import JobRecord

    return shown_job(each) if isinstance(each, JobRecord) else shown_chain(each)


def _row(each: JobRecord | ChainRecord) -> dict[str, Any]:
    return {"id": each.id, "type": each.type, "was": each.state}


def _impossible(choice: Choice[R], unable: Sequence[R], kind: Move) -> ChainError:
    if not unable:
        return _NOT_FOUND[kind.noun](f"there is no {kind.noun} {choice.missing[0]}")
    return kind.command.refusal([(each.id, each.state) for each in unable], kind.noun)
