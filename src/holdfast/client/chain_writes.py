"""Writes to chains from outside a worker, in the caller's transaction: complete, continue, cancel, delete, retry."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, overload

from holdfast.client import news
from holdfast.client.client import Client, Conditions, Write
from holdfast.client.hints import of_deleted, of_due, of_ended, of_moved
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.options import Id, id_text, id_texts
from holdfast.client.targets import Targets
from holdfast.client.views import Chain, chain_of
from holdfast.client.witnesses import ended_among, gone_among, redriven_among
from holdfast.commands.cancel import EndReport, cancel_chain, end_chain
from holdfast.commands.delete import delete_chains
from holdfast.commands.requeue import retry_chain, trigger_chain
from holdfast.core.codec import encode_output
from holdfast.core.errors import InvalidOption
from holdfast.core.events import Event
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import NewJob, TerminalState
from holdfast.core.registry import Target
from holdfast.notify.base import Hint
from holdfast.storage.after_commit import Witness
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

Said: TypeAlias = tuple[Sequence[Hint], Sequence[Event], Witness | None]
"""What is to be said of a change after its commit, and the job by which one can see whether it was undone."""


class ChainWrites:
    """What can be done to chains. With a sync `tx` the answer comes at once, with an async one it is awaited."""

    def __init__(self, client: Client, targets: Targets) -> None:
        self._writes = client
        self._targets = targets

    @overload
    def complete(self, tx: SyncTx, id: Id, output: Any = None) -> Chain: ...
    @overload
    def complete(self, tx: AsyncTx, id: Id, output: Any = None) -> Coroutine[Any, Any, Chain]: ...
    def complete(self, tx: Any, id: Id, output: Any = None) -> Any:
        """End a chain with an output, whoever holds its job; a running worker is told `already_completed`.

        Raises: ChainNotFound, WrongState when it has ended, PayloadError, InvalidOption.
        """
        if isinstance(output, Continue | Snooze | Cancel):
            raise InvalidOption(
                f"{type(output).__name__} is a handler's answer, and no output",
                help="from outside there are continue_with(), trigger() and cancel()",
            )
        chain, text = id_text(id), encode_output(output)

        def end(store: Store, _: Conditions) -> Op[EndReport]:
            return end_chain(store, chain, "completed", output=text)

        return self._end(tx, chain, end, "completed")

    @overload
    def continue_with(self, tx: SyncTx, id: Id, target: Target, input: Any = None) -> Chain: ...
    @overload
    def continue_with(
        self, tx: AsyncTx, id: Id, target: Target, input: Any = None
    ) -> Coroutine[Any, Any, Chain]: ...
    def continue_with(self, tx: Any, id: Id, target: Target, input: Any = None) -> Any:
        """Complete a chain's present job from outside and go on with another; repeat it to walk several steps.

        Raises: ChainNotFound, WrongState, UnknownJobType, InputInvalid.
        """
        chain, entry = id_text(id), self._targets.successor(target)
        text = self._targets.encode(entry, input)

        def end(store: Store, conditions: Conditions) -> Op[EndReport]:
            trace = None if conditions.trace is None else conditions.trace(entry.name)
            next = NewJob(id=new_id(), chain_id=chain, type=entry.name, input=text, trace=trace)
            return end_chain(store, chain, "completed", next=next)

        return self._end(tx, chain, end, "completed", next_type=entry.name)

    @overload
    def cancel(self, tx: SyncTx, id: Id, reason: str = "") -> Chain: ...
    @overload
    def cancel(self, tx: AsyncTx, id: Id, reason: str = "") -> Coroutine[Any, Any, Chain]: ...
    def cancel(self, tx: Any, id: Id, reason: str = "") -> Any:
        """Cancel a chain: a waiting job at once, a running one through its abort signal.

        Raises: ChainNotFound, WrongState when it has ended.
        """
        chain = id_text(id)

        def end(store: Store, _: Conditions) -> Op[EndReport]:
            return cancel_chain(store, chain, reason)

        return self._end(tx, chain, end, "cancelled", reason)

    @overload
    def trigger(self, tx: SyncTx, id: Id) -> Chain: ...
    @overload
    def trigger(self, tx: AsyncTx, id: Id) -> Coroutine[Any, Any, Chain]: ...
    def trigger(self, tx: Any, id: Id) -> Any:
        """Make a chain's pending job due now. Raises: ChainNotFound, WrongState."""
        chain = id_text(id)

        def change(store: Store, _: Conditions) -> Op[Said]:
            return of_moved((yield from trigger_chain(store, chain))), [], None

        return self._write(tx, chain, change)

    @overload
    def retry(self, tx: SyncTx, id: Id) -> Chain: ...
    @overload
    def retry(self, tx: AsyncTx, id: Id) -> Coroutine[Any, Any, Chain]: ...
    def retry(self, tx: Any, id: Id) -> Any:
        """Take a failed chain up again from its failed job. Raises: ChainNotFound, WrongState."""
        chain = id_text(id)

        def change(store: Store, _: Conditions) -> Op[Said]:
            moved = yield from retry_chain(store, chain)
            return of_moved(moved), news.of_redriven(moved), redriven_among(moved)

        return self._write(tx, chain, change)

    @overload
    def delete(self, tx: SyncTx, *ids: Id, cascade: bool = False) -> int: ...
    @overload
    def delete(self, tx: AsyncTx, *ids: Id, cascade: bool = False) -> Coroutine[Any, Any, int]: ...
    def delete(self, tx: Any, *ids: Id, cascade: bool = False) -> Any:
        """Delete chains with all their jobs, and with `cascade` the chains those waited for; return how many jobs.

        Raises: ChainNotFound, StillReferenced when jobs of other chains wait for one of them.
        """
        chains, hints = id_texts(ids), list[Hint]()

        def op(store: Store, _: Conditions) -> Op[int]:
            report = yield from delete_chains(store, chains, cascade)
            hints[:] = of_deleted(report)
            return len(report.removed)

        return self._writes.write(
            tx, Write(op, lambda _: hints, witness=lambda _: gone_among(chains))
        )

    def _end(
        self,
        tx: Any,
        chain: str,
        end: Callable[[Store, Conditions], Op[EndReport]],
        state: TerminalState,
        reason: str | None = None,
        next_type: str | None = None,
    ) -> Any:
        def change(store: Store, conditions: Conditions) -> Op[Said]:
            report = yield from end(store, conditions)
            hints = of_ended(report, goes_on=next_type is not None)
            also = of_due([next_type] if next_type else [])
            events = news.of_ended(report, state, reason, next_type)
            return [*also, *hints], events, ended_among(report, state)

        return self._write(tx, chain, change)

    def _write(self, tx: Any, chain: str, change: Callable[[Store, Conditions], Op[Said]]) -> Any:
        """Make a change and answer with the chain as it is then."""
        said: Said = [], [], None

        def op(store: Store, conditions: Conditions) -> Op[Chain]:
            nonlocal said
            said = yield from change(store, conditions)
            records = yield from store.chains.get([chain])
            return chain_of(records[0])

        return self._writes.write(
            tx, Write(op, lambda _: said[0], lambda _: said[1], lambda _: said[2])
        )
