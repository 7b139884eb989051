"""Public views of records: read-only, with instants as datetimes and ids as UUIDs.

Payloads are decoded on access, as plain JSON values: those of old jobs need not fit today's types.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_type_hints, overload
from uuid import UUID

import msgspec

from holdfast.commands.start import Started
from holdfast.core.codec import TypeCodec, decode_any
from holdfast.core.errors import OutputInvalid, SealError
from holdfast.core.instants import Instant, to_datetime
from holdfast.core.job_context import decode_context
from holdfast.core.records import ChainRecord, ChainState, JobRecord, OnBlockerFailure, State
from holdfast.core.sealing import Sealer, open_input, open_output
from holdfast.core.steps import StepId, StepKind, StepState

if TYPE_CHECKING:
    # Type checkers know defaults of type variables before Python 3.13 does.
    from typing_extensions import TypeVar as TypeVarWithDefault

    OutputT = TypeVarWithDefault("OutputT", default=Any)
else:
    OutputT = TypeVar("OutputT")

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)


def view_of(kind: type[V], record: msgspec.Struct, **given: Any) -> V:
    """Return a record as its public view: the same fields, with ids as UUIDs and instants as datetimes.

    Fields that are `given` come from the caller instead.
    """
    same = {
        name: convert(getattr(record, source))
        for name, source, convert in _fields(kind)
        if name not in given
    }
    return kind(**same, **given)


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, Callable[[Any], Any]]]:
    hints = get_type_hints(kind)
    return [
        (each.name, each.name.removeprefix("_"), _CONVERTERS.get(hints[each.name], _same))
        for each in msgspec.structs.fields(kind)
    ]


def _same(value: Any) -> Any:
    return value


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    UUID: UUID,
    bool: bool,
    datetime: to_datetime,
    datetime | None: to_datetime,
    tuple[str, ...]: tuple,
}


class Chain(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True):
    """A chain as its start or a read found it; it does not change afterwards.

    For type checkers, `Chain[str]` is a chain whose handler returns a str.

    A start that was deduplicated by a key of `scope="any"` may find a chain that is no longer kept: its state is
    `removed`, and nothing but its id, type and key is known.
    """

    _id: str
    type: str
    state: ChainState
    key: str | None
    error: str | None = None
    jobs: int = 1
    deduplicated: bool = False
    _input: str
    _output: str | None = None
    _created_at: Instant | None = None
    _finished_at: Instant | None = None
    _sealer: Sealer | None = None

    @property
    def id(self) -> UUID:
        """The chain's id, which is its first job's."""
        return UUID(self._id)

    @property
    def input(self) -> Any:
        """What was asked of its first job. Raises: SealError."""
        return decode_any(open_input(self._sealer, self._input, self._id, self.type))

    @property
    def output(self) -> Any:
        """What came of it; None unless it completed. Raises: SealError."""
        return None if self._output is None else decode_any(self._output_text())

    def output_as(self, kind: builtins.type[T]) -> T:
        """Return the output as a value of this type. Raises: OutputInvalid, SealError."""
        return cast(T, TypeCodec(kind, "output").decode(self._output_text()))

    def _output_text(self) -> str:
        return open_output(self._sealer, self._output or "null", self._id)

    @property
    def created_at(self) -> datetime | None:
        """When it was started, by the database's clock; None in the answer to its own start."""
        return to_datetime(self._created_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended."""
        return to_datetime(self._finished_at)

    def __repr__(self) -> str:
        """Show what identifies it, and no payload."""
        return f"Chain({self._id}, type={self.type!r}, state={self.state!r})"


class CompletedChain(Chain[OutputT], frozen=True, kw_only=True):
    """A chain that has completed, as `app.chains.wait` returns it."""

    _decoded: Any
    _misfit: OutputInvalid | SealError | None

    @property
    def output(self) -> OutputT:
        """What came of it.

        If you waited for what `start` returned, and its handler did not continue the chain, this is a value of the
        type that the handler says it returns; otherwise plain JSON.
        Raises: OutputInvalid for one of another type, SealError.
        """
        if self._misfit is not None:
            raise self._misfit
        return cast(OutputT, self._decoded)


def new_chain(started: Started, key: str | None, input: str) -> Chain:
    """Return a chain that was just started, without reading it back."""
    return Chain(_id=started.id, type=started.type, state=started.state, key=key, _input=input)


def removed_chain(id: str, type: str, key: str | None) -> Chain:
    """Return a chain of which only the key is left."""
    return Chain(
        _id=id, type=type, state="removed", key=key, jobs=0, deduplicated=True, _input="null"
    )


def chain_of(record: ChainRecord, sealer: Sealer | None, deduplicated: bool = False) -> Chain:
    """Return the public view of a chain."""
    return view_of(Chain, record, deduplicated=deduplicated, _sealer=sealer)


def completed_chain(
    record: ChainRecord, codec: TypeCodec | None, sealer: Sealer | None
) -> CompletedChain:
    """Return the public view of a chain that has completed, its output decoded by a codec or as plain JSON."""
    decoded: Any = None
    misfit: OutputInvalid | SealError | None = None
    try:
        text = open_output(sealer, record.output or "null", record.id)
        decoded = decode_any(text) if codec is None else codec.decode(text)
    except (OutputInvalid, SealError) as error:
        misfit = error
    return view_of(
        CompletedChain, record, deduplicated=False, _decoded=decoded, _misfit=misfit, _sealer=sealer
    )


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a read found it; it does not change afterwards."""

    id: UUID
    chain_id: UUID
    chain_index: int
    type: str
    state: State
    priority: int
    key: str | None
    trace: str | None
    attempt: int
    max_attempts: int | None
    crashes: int
    fence: int
    worker: str | None
    error: str | None
    fingerprint: str | None
    continued: bool
    created_at: datetime
    planned_at: datetime | None
    available_at: datetime | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    version: int = 1
    expires_at: datetime | None = None
    context: dict[str, str] = {}
    _input: str
    _output: str | None
    _sealer: Sealer | None = None

    @property
    def input(self) -> Any:
        """What was asked. Raises: SealError."""
        return decode_any(open_input(self._sealer, self._input, str(self.id), self.type))

    @property
    def output(self) -> Any:
        """What came of it; None unless it completed. Raises: SealError."""
        if self._output is None:
            return None
        return decode_any(open_output(self._sealer, self._output, str(self.chain_id)))

    def __repr__(self) -> str:
        """Show what identifies it, and no payload."""
        error = f", error={self.error.splitlines()[0][:200]!r}" if self.error else ""
        return f"JobInfo({self.id}, type={self.type!r}, state={self.state!r}, attempt={self.attempt}{error})"


def job_of(record: JobRecord, sealer: Sealer | None) -> JobInfo:
    """Return a job's public view."""
    return view_of(JobInfo, record, context=decode_context(record.context), _sealer=sealer)


class BlockerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits or waited for a chain; `state`, `output` and `error` are the chain's."""

    job_id: UUID
    chain_id: UUID
    position: int
    open: bool
    on_failure: OnBlockerFailure
    state: State | None
    error: str | None = None
    _output: str | None
    _sealer: Sealer | None = None

    @property
    def output(self) -> Any:
        """The chain's output; None unless it completed. Raises: SealError."""
        if self._output is None:
            return None
        return decode_any(open_output(self._sealer, self._output, str(self.chain_id)))


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not complete its job."""

    job_id: UUID
    attempt: int
    fence: int
    kind: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: str | None


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a durable call of a job left behind; it is open while it sleeps, waits or other chains run for it."""

    job_id: UUID
    name: str
    key: str
    nth: int
    position: int
    kind: StepKind
    state: StepState
    error: str | None
    undo: bool
    fence: int
    started_at: datetime | None
    finished_at: datetime | None
    until: datetime | None
    signal: str | None
    signal_key: str | None
    _output: str | None
    _chain_id: str
    _sealer: Sealer | None = None

    @property
    def step(self) -> str:
        """Its name with its key, or with the number of its use, as in mail[ana] and mail#2."""
        return str(StepId(self.name, self.key, self.nth))

    @property
    def output(self) -> Any:
        """What came of it; of a call that is open the ids of the chains. Raises: SealError."""
        if self._output is None:
            return None
        return decode_any(open_output(self._sealer, self._output, self._chain_id))

    def __repr__(self) -> str:
        """Show what identifies it, and no payload."""
        return f"RecordedStep({self.step!r}, kind={self.kind!r}, state={self.state!r})"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, newest first; `next` is the cursor of the following part, None at the end.

    `cut` means the page is short because the scan stopped, not because nothing more matches.
    """

    items: tuple[T, ...]
    next: str | None
    cut: bool = False

    def __iter__(self) -> Iterator[T]:
        """Go through the items."""
        return iter(self.items)

    def __len__(self) -> int:
        """Count the items of this part."""
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return an item of this part by its position, or those of a slice."""
        return self.items[index]
