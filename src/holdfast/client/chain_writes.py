"""Writes to chains from outside a worker, in the caller's transaction: complete, continue, cancel, delete, retry."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, overload

from holdfast.client.client import Client, Write
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.options import Id, id_text, id_texts
from holdfast.client.targets import Targets
from holdfast.client.views import Chain, chain_of
from holdfast.core.codec import encode_any
from holdfast.core.model import JobRef, NewJob
from holdfast.core.registry import Target
from holdfast.ops.delete import delete_chains
from holdfast.ops.end import EndReport, cancel_chain, end_chain
from holdfast.ops.move import retry_chain, trigger_chain
from holdfast.storage.identifiers import new_id
from holdfast.storage.port import Store
from holdfast.storage.statement import Op

Moved = tuple[list[Chain], list[str]]
"""The chains as a write left them, and the types that may be due now."""


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

        Raises: ChainNotFound, WrongState when it has ended, PayloadError.
        """
        chain, text = id_text(id), encode_any(output)
        return self._end(tx, chain, lambda store: end_chain(store, chain, "completed", output=text))

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
        chain, entry = id_text(id), self._targets.entry(target)
        successor = NewJob(
            id=new_id(), chain_id=chain, type=entry.name, input=self._targets.encode(entry, input)
        )
        return self._end(
            tx,
            chain,
            lambda store: end_chain(store, chain, "completed", next=successor),
            also=[entry.name],
        )

    @overload
    def cancel(self, tx: SyncTx, id: Id, reason: str = "") -> Chain: ...
    @overload
    def cancel(self, tx: AsyncTx, id: Id, reason: str = "") -> Coroutine[Any, Any, Chain]: ...
    def cancel(self, tx: Any, id: Id, reason: str = "") -> Any:
        """Cancel a chain: a waiting job at once, a running one through its abort signal.

        Raises: ChainNotFound, WrongState when it has ended.
        """
        chain = id_text(id)
        return self._end(tx, chain, lambda store: cancel_chain(store, chain, reason))

    @overload
    def trigger(self, tx: SyncTx, id: Id) -> Chain: ...
    @overload
    def trigger(self, tx: AsyncTx, id: Id) -> Coroutine[Any, Any, Chain]: ...
    def trigger(self, tx: Any, id: Id) -> Any:
        """Make a chain's pending job due now. Raises: ChainNotFound, WrongState."""
        chain = id_text(id)
        return self._move(tx, chain, lambda store: trigger_chain(store, chain))

    @overload
    def retry(self, tx: SyncTx, id: Id) -> Chain: ...
    @overload
    def retry(self, tx: AsyncTx, id: Id) -> Coroutine[Any, Any, Chain]: ...
    def retry(self, tx: Any, id: Id) -> Any:
        """Take a failed chain up again from its failed job. Raises: ChainNotFound, WrongState."""
        chain = id_text(id)
        return self._move(tx, chain, lambda store: retry_chain(store, chain))

    @overload
    def delete(self, tx: SyncTx, *ids: Id, cascade: bool = False) -> int: ...
    @overload
    def delete(self, tx: AsyncTx, *ids: Id, cascade: bool = False) -> Coroutine[Any, Any, int]: ...
    def delete(self, tx: Any, *ids: Id, cascade: bool = False) -> Any:
        """Delete chains with all their jobs, and with `cascade` the chains those waited for; return how many jobs.

        Raises: ChainNotFound, StillReferenced when jobs of other chains wait for one of them.
        """
        chains = id_texts(ids)

        def op(store: Store, _: str | None) -> Op[int]:
            removed = yield from delete_chains(store, chains, cascade)
            return len(removed)

        return self._writes.write(tx, Write(op, lambda _: ()))

    def _end(
        self,
        tx: Any,
        chain: str,
        end: Callable[[Store], Op[EndReport]],
        also: Iterable[str] = (),
    ) -> Any:
        def types(store: Store) -> Op[list[str]]:
            report = yield from end(store)
            return [*also, *(each.type for each in report.fan_in.opened)]

        return self._write(tx, chain, types)

    def _move(self, tx: Any, chain: str, move: Callable[[Store], Op[list[JobRef]]]) -> Any:
        def types(store: Store) -> Op[list[str]]:
            moved = yield from move(store)
            return [each.type for each in moved]

        return self._write(tx, chain, types)

    def _write(self, tx: Any, chain: str, types_of: Callable[[Store], Op[list[str]]]) -> Any:
        """Make a change and answer with the chain as it is then; hints go out with the commit."""
        concerned: list[str] = []

        def op(store: Store, _: str | None) -> Op[Chain]:
            concerned[:] = yield from types_of(store)
            records = yield from store.chains.get([chain])
            return chain_of(records[0])

        return self._writes.write(tx, Write(op, lambda _: concerned))
