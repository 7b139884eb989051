"""Starting chains and publishing events in the caller's transaction, with the types of inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from inspect import isroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec

from holdfast.client.adapters.base import AnyTx, AsyncTx, SyncTx, in_transaction
from holdfast.client.client import Client, ClientCommand, Conditions
from holdfast.client.start_options import SharedOptions, StartOptions, check_options
from holdfast.client.start_plan import (
    Start,
    Starter,
    created_event,
    publish_command,
    start_command,
    use_key_command,
)
from holdfast.client.start_targets import Targets
from holdfast.client.views import Chain, OutputT
from holdfast.commands.change import Change, due_hints
from holdfast.commands.signals import make_signal, send_signal
from holdfast.commands.start import keep_large
from holdfast.core.duration import Duration
from holdfast.core.errors import HoldfastError, InvalidName, UnknownJobType, UnsupportedConnection
from holdfast.core.records import NewJob
from holdfast.core.registry import Target
from holdfast.core.sealing import NEVER_LARGE
from holdfast.storage.after_commit import Witness
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

if TYPE_CHECKING:
    from holdfast.core.outcome import Cancel, Snooze
    from holdfast.worker.job import Job, SyncJob


InputT = TypeVar("InputT")

AsyncHandler: TypeAlias = "Callable[[Job[InputT]], Coroutine[Any, Any, OutputT | Snooze | Cancel]]"
SyncHandler: TypeAlias = "Callable[[SyncJob[InputT]], OutputT | Snooze | Cancel]"
"""Handlers of jobs with this input and output, so that type checkers see a wrong input and know the output."""
BatchHandler: TypeAlias = "Callable[[list[Job[InputT]]], Any]"


class PublishOptions(TypedDict, total=False):
    """Options of `app.publish`."""

    at: datetime | None
    """Not before this time, with a time zone; a time in the past means now."""

    after: Duration | None
    """Not before this long from now, by the database's clock."""

    priority: int
    """Priority of its deliveries, from 0 (most urgent) to 9; by default 5."""

    key: str | None
    """What it is about, such as an order's id: readers of the log get events of one key in order."""

    context: Mapping[str, str] | None
    """What its deliveries are started in, such as `{"tenant": "acme"}`, instead of what `add_context` captures."""


class SignalOptions(TypedDict, total=False):
    """Options of `app.signal`."""

    id: str | None
    """An id of the caller's: of signals with the same name, key and id only the first counts."""

    keep: Duration
    """How long it waits for a function that waits for it; by default seven days."""

    broadcast: bool
    """Whether every function that waits for it gets it; by default the first one does."""


class Producer:
    """Starts chains and publishes events; with an async connection, await the answer."""

    def _connect(self, client: Client, targets: Targets) -> None:
        """Write through this client from now on."""
        self.client = client
        self.targets = targets
        self._starter = Starter(targets)

    @overload
    def start(
        self,
        tx: SyncTx,
        target: AsyncHandler[InputT, OutputT],
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Chain[OutputT]: ...
    @overload
    def start(
        self,
        tx: SyncTx,
        target: SyncHandler[InputT, OutputT],
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Chain[OutputT]: ...
    @overload
    def start(
        self,
        tx: SyncTx,
        target: BatchHandler[InputT] | str,
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Chain[Any]: ...
    @overload
    def start(
        self,
        tx: AsyncTx,
        target: AsyncHandler[InputT, OutputT],
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Coroutine[Any, Any, Chain[OutputT]]: ...
    @overload
    def start(
        self,
        tx: AsyncTx,
        target: SyncHandler[InputT, OutputT],
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Coroutine[Any, Any, Chain[OutputT]]: ...
    @overload
    def start(
        self,
        tx: AsyncTx,
        target: BatchHandler[InputT] | str,
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Coroutine[Any, Any, Chain[Any]]: ...
    def start(
        self, tx: Any, target: Target, input: Any = None, **options: Unpack[StartOptions]
    ) -> Chain | Coroutine[Any, Any, Chain]:
        """Start a chain in the caller's transaction; on an async connection, await it.

        Raises: UnknownJobType, InputInvalid, PayloadError, InvalidOption, ChainNotFound for a
        blocker, and connection and schema errors; in that case nothing is written. In a transaction
        of ours the server's errors may come at its end, with which a start without options travels.
        """
        try:
            if not options and (made := self._new_job(target, input)) is not None:
                return self.client.write(tx, _insert_command(*made))
            batch = self._starter.one(target, input, options)
        except UnknownJobType as error:
            raise _without_transaction(tx, "start", error) from error
        return self.client.write(tx, _only(start_command(batch)))

    def _new_job(self, target: Target, input: Any) -> tuple[NewJob, str] | None:
        """Check a start without options; return the job and its clear input, None if it expires. Raises: as `start`."""
        entry = self.targets.entry(target)
        if entry.expires_ms is not None:
            return None
        text = self.targets.encode(entry, input)
        id = new_id()
        stored = entry.stored_input(id, text) if entry.sealed else text
        if entry.flow is None and entry.version is None:
            return NewJob(id, id, entry.name, stored), text
        gate, ordered, cost = entry.place(text)
        job = NewJob(
            id, id, entry.name, stored, gate=gate, ordered=ordered, version=entry.version, cost=cost
        )
        return job, text

    @overload
    def start_many(
        self,
        tx: SyncTx,
        target: AsyncHandler[InputT, OutputT],
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> list[Chain[OutputT]]: ...
    @overload
    def start_many(
        self,
        tx: SyncTx,
        target: SyncHandler[InputT, OutputT],
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> list[Chain[OutputT]]: ...
    @overload
    def start_many(
        self,
        tx: SyncTx,
        target: BatchHandler[InputT] | str,
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> list[Chain[Any]]: ...
    @overload
    def start_many(
        self,
        tx: AsyncTx,
        target: AsyncHandler[InputT, OutputT],
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[Chain[OutputT]]]: ...
    @overload
    def start_many(
        self,
        tx: AsyncTx,
        target: SyncHandler[InputT, OutputT],
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[Chain[OutputT]]]: ...
    @overload
    def start_many(
        self,
        tx: AsyncTx,
        target: BatchHandler[InputT] | str,
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[Chain[Any]]]: ...
    def start_many(
        self,
        tx: Any,
        target: Target,
        inputs: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> list[Chain] | Coroutine[Any, Any, list[Chain]]:
        """Start a chain for each input in one round trip; `keys` match the inputs one by one."""
        batch = self._starter.many(target, inputs, keys, options)
        return self.client.write(tx, start_command(batch))

    @in_transaction
    def start_all(self, tx: AnyTx, starts: Iterable[Start]) -> list[Chain]:
        """Start chains of different types and options in one round trip."""
        return self.client.write(tx, start_command(self._starter.all(starts)))

    @in_transaction
    def publish(
        self, tx: AnyTx, event: str, input: Any = None, **options: Unpack[PublishOptions]
    ) -> list[Chain]:
        """Publish an event in the caller's transaction; return a chain per subscribed handler.

        If consumers read it, it is also in the log. If nothing does, it waits as one chain under its own name until a
        handler subscribes.
        """
        check_options(options, PublishOptions)
        try:
            command = publish_command(self.targets, event, input, **options)
        except InvalidName as error:
            raise _without_transaction(tx, "publish", error) from error
        return self.client.write(tx, command)

    @in_transaction
    def signal(
        self,
        tx: AnyTx,
        name: str,
        *,
        key: object = None,
        data: Any = None,
        **options: Unpack[SignalOptions],
    ) -> bool:
        """Send a signal in the caller's transaction to the function that waits for this name and key, now or later.

        Return False if one with the same id was sent before. Raises: InvalidName, InvalidOption, PayloadError.
        """
        check_options(options, SignalOptions)
        try:
            signal = make_signal(name, key, data, **options)
        except InvalidName as error:
            raise _without_transaction(tx, "signal", error) from error
        return self.client.write(tx, lambda store, conditions: send_signal(store, signal))

    @in_transaction
    def use_key(self, tx: AnyTx, scope: str, key: str) -> bool:
        """Record in the caller's transaction that a key was used; return False if it was used before.

        Another transaction with the same scope and key waits for this one to end; after a rollback the key is
        unused again. Keys are kept for HOLDFAST_KEY_DAYS. Raises: InvalidOption.
        """
        return self.client.write(tx, use_key_command(scope, key))


def _without_transaction(tx: Any, method: str, error: HoldfastError) -> HoldfastError:
    """Return the error for a call whose first argument was left out, else the one that was raised."""
    if not isinstance(tx, str) and not isroutine(tx):
        return error
    name = repr(tx) if isinstance(tx, str) else tx.__name__
    return UnsupportedConnection(
        f"the first argument of app.{method} is your transaction, not {name}",
        help=f"write app.{method}(tx, {name}, …), inside `with app.transaction() as tx` "
        "or with your own connection",
    )


def _insert_command(job: NewJob, input: str) -> ClientCommand[Chain]:
    """Return the command that starts a chain without options: one insert, and nothing to look up."""

    def command(store: Store, conditions: Conditions) -> Op[Change[Chain]]:
        new = job
        if conditions.trace is not None:
            new = msgspec.structs.replace(job, trace=conditions.trace(job.type))
        if conditions.capture is not None and (context := conditions.capture()) is not None:
            new = msgspec.structs.replace(new, context=context)
        if conditions.sealer is not None and len(job.input) > NEVER_LARGE:
            yield from keep_large(conditions.sealer, jobs := [new])
            new = jobs[0]
        yield from store.jobs.insert_new(new, conditions.channel)
        chain: Chain = Chain(_id=job.id, type=job.type, state="pending", key=None, _input=input)
        if conditions.channel and not conditions.has_observers:
            return Change(chain)
        return Change(
            chain,
            (),
            () if conditions.channel else due_hints((job.type,)),
            (created_event(job.id, job.type),) if conditions.has_observers else (),
            Witness(job.id, "there"),
        )

    return command


def _only(command: ClientCommand[list[Chain]]) -> ClientCommand[Chain]:
    """Return the command that answers with its only chain."""

    def only(store: Store, conditions: Conditions) -> Op[Change[Chain]]:
        change = yield from command(store, conditions)
        return change.with_answer(change.answer[0])

    return only
