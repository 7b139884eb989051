"""`app.chains`: read chains, wait for them, and complete, continue, cancel, retry or delete them."""

from __future__ import annotations

import asyncio
import builtins
from functools import partial
from typing import Any, overload

import msgspec

from holdfast.client.adapters.base import AnyTx, AsyncTx, SyncTx, in_transaction
from holdfast.client.client import Client, ClientCommand, Conditions, Resource
from holdfast.client.pagination import PAGE_LENGTH, check_length, read_page
from holdfast.client.start_options import Id, id_text, id_texts
from holdfast.client.start_targets import Targets
from holdfast.client.views import (
    BlockerInfo,
    Chain,
    CompletedChain,
    JobInfo,
    OutputT,
    Page,
    chain_of,
    completed_chain,
    job_of,
    view_of,
)
from holdfast.client.waiting import Waiting
from holdfast.commands.blockers import no_such_chain
from holdfast.commands.chains import (
    cancel_chain,
    complete_chain,
    continue_chain,
    delete_chains,
    retry_chain,
    run_chain_now,
)
from holdfast.commands.change import Change, count_answer
from holdfast.commands.start import keep_large
from holdfast.core.codec import encode_output
from holdfast.core.duration import Duration
from holdfast.core.errors import InvalidOption
from holdfast.core.ids import beside
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import ChainRecord, NewJob
from holdfast.core.registry import Target
from holdfast.core.sealing import is_large
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class ChainCommands(Resource):
    """What can be done to chains in the caller's transaction; with an async one, await the answer."""

    def __init__(self, client: Client, targets: Targets, waiting: Waiting) -> None:
        super().__init__(client)
        self._targets = targets
        self._waiting = waiting

    @in_transaction
    def complete(self, tx: AnyTx, id: Id, output: Any = None) -> Chain:
        """Complete a chain with an output; a handler that is running its job is aborted with `already_completed`.

        Raises: ChainNotFound, WrongState when it has ended, PayloadError, InvalidOption, SealKeyMissing.
        """
        if isinstance(output, Continue | Snooze | Cancel):
            raise InvalidOption(
                f"{type(output).__name__} is a handler's decision, not an output",
                help="use continue_with(), trigger() or cancel() instead",
            )
        chain, text = id_text(id), encode_output(output)
        seal = self._targets.stored_output
        return self._write(
            tx, chain, lambda store, _: complete_chain(store, chain, text, seal=seal)
        )

    @in_transaction
    def continue_with(self, tx: AnyTx, id: Id, target: Target, input: Any = None) -> Chain:
        """Complete a chain's current job from outside and continue with another; repeat it for several steps.

        Raises: ChainNotFound, WrongState, UnknownJobType, InputInvalid.
        """
        chain, entry = id_text(id), self._targets.successor(target)
        text = self._targets.encode(entry, input)

        def command(store: Store, conditions: Conditions) -> Op[Change[str]]:
            trace = None if conditions.trace is None else conditions.trace(entry.name)
            gate, ordered, cost = entry.place(text)
            id = beside(new_id(), chain)
            next = NewJob(
                id,
                chain,
                entry.name,
                entry.stored_input(id, text),
                trace=trace,
                gate=gate,
                ordered=ordered,
                version=entry.version,
                cost=cost,
            )
            yield from keep_large(conditions.sealer, jobs := [next])
            return (yield from continue_chain(store, chain, jobs[0]))

        return self._write(tx, chain, command)

    @in_transaction
    def cancel(self, tx: AnyTx, id: Id, reason: str = "") -> Chain:
        """Cancel a chain: a waiting job immediately, a running one through its abort signal.

        Raises: ChainNotFound, WrongState when it has ended.
        """
        chain = id_text(id)
        return self._write(tx, chain, lambda store, _: cancel_chain(store, chain, reason))

    @in_transaction
    def trigger(self, tx: AnyTx, id: Id) -> Chain:
        """Make a chain's pending job due now. Raises: ChainNotFound, WrongState."""
        chain = id_text(id)
        return self._write(tx, chain, lambda store, _: run_chain_now(store, chain))

    @in_transaction
    def retry(self, tx: AnyTx, id: Id) -> Chain:
        """Resume a failed chain from its failed job. Raises: ChainNotFound, WrongState."""
        chain = id_text(id)
        return self._write(tx, chain, lambda store, _: retry_chain(store, chain))

    @in_transaction
    def delete(self, tx: AnyTx, *ids: Id, cascade: bool = False) -> int:
        """Delete chains with all their jobs, and with `cascade` the chains those waited for; return how many jobs.

        Raises: ChainNotFound, StillReferenced when jobs of other chains wait for one of them.
        """
        chains = id_texts(ids)
        return self._client.write(
            tx, lambda store, _: count_answer(delete_chains(store, chains, cascade))
        )

    def _write(self, tx: Any, chain: str, command: ClientCommand[str]) -> Chain:
        """Run a command and return the chain as it is then."""

        def op(store: Store, conditions: Conditions) -> Op[Change[Chain]]:
            change = yield from command(store, conditions)
            records = yield from store.chains.get([chain])
            return change.with_answer(chain_of(records[0], self._client.sealer))

        return self._client.write(tx, op)

    def _completed_chain(self, id: Id, record: ChainRecord) -> CompletedChain:
        """Return what was waited for; only a chain's first job has the output of the type that it began with."""
        is_known = isinstance(id, Chain) and record.jobs == 1
        codec = self._targets.output_of(record.type) if is_known else None
        return completed_chain(record, codec, self._client.sealer)

    def _get(self, id: Id) -> Op[Chain]:
        wanted = id_text(id)
        records = yield from self._client.store.chains.get([wanted])
        if not records:
            raise (yield from no_such_chain(self._client.store, wanted))
        yield from self._client.store.schema.confirm()
        return chain_of(records[0], self._client.sealer)

    def _list(self, filter: str, limit: int, after: str | None) -> Op[Page[Chain]]:
        show = partial(chain_of, sealer=self._client.sealer)
        return read_page("chains", filter, limit, after, self._client.store.chains.walk, show)

    def _jobs(self, id: Id, last: int | None) -> Op[builtins.list[JobInfo]]:
        wanted = id_text(id)
        length = None if last is None else check_length(last, "last")
        records = yield from self._client.store.chains.jobs(wanted, length)
        if not records:
            raise (yield from no_such_chain(self._client.store, wanted))
        return [job_of(each, self._client.sealer) for each in records]

    def _waiting_jobs(self, id: Id, limit: int) -> Op[builtins.list[BlockerInfo]]:
        wanted = id_text(id)
        chain = yield from self._get(wanted)
        edges = yield from self._client.store.blockers.waiting(wanted, check_length(limit))
        shown = [view_of(BlockerInfo, each, _sealer=self._client.sealer) for each in edges]
        return [
            msgspec.structs.replace(each, state=chain.state, error=chain.error) for each in shown
        ]


class Chains(ChainCommands):
    """Reads chains, on a connection of ours or, with `tx`, inside the caller's transaction; writes take it first."""

    @overload
    def wait(
        self, id: Chain[Continue | OutputT], timeout: Duration | None = None
    ) -> CompletedChain[Any]: ...
    @overload
    def wait(
        self, id: Chain[OutputT], timeout: Duration | None = None
    ) -> CompletedChain[OutputT]: ...
    @overload
    def wait(self, id: Id, timeout: Duration | None = None) -> CompletedChain[Any]: ...
    def wait(self, id: Id, timeout: Duration | None = None) -> CompletedChain[Any]:
        """Block until a chain has completed, woken by hints.

        Pass what `start` returned, and the output has the type that the handler returns; with an id it is plain JSON.

        Raises: WaitTimeout, ChainFailed, ChainCancelled, ChainDeleted, ChainNotFound.
        """
        return self._completed_chain(id, self._waiting.wait(id, timeout))

    def get(self, id: Id, *, tx: SyncTx | None = None) -> Chain:
        """Read a chain. Raises: ChainNotFound, InvalidId."""
        return self._client.read(self._get(id), tx)

    def list(
        self,
        filter: str = "",
        *,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: SyncTx | None = None,
    ) -> Page[Chain]:
        """Read a page of chains, newest first; `after` is the previous page's `next`.

        Raises: FilterError, InvalidOption, InvalidCursor.
        """
        return self._client.read(self._list(filter, limit, after), tx)

    def jobs(
        self, id: Id, *, last: int | None = None, tx: SyncTx | None = None
    ) -> builtins.list[JobInfo]:
        """Read the jobs of a chain in order, or its last ones. Raises: ChainNotFound, InvalidId, InvalidOption."""
        return self._client.read(self._jobs(id, last), tx)

    def waiting(
        self, id: Id, *, limit: int = PAGE_LENGTH, tx: SyncTx | None = None
    ) -> builtins.list[BlockerInfo]:
        """Read which jobs wait for a chain, or waited for it. Raises: ChainNotFound, InvalidId, InvalidOption."""
        return self._client.read(self._waiting_jobs(id, limit), tx)


class AsyncChains(ChainCommands):
    """Async version of `Chains`."""

    @overload
    async def wait(
        self, id: Chain[Continue | OutputT], timeout: Duration | None = None
    ) -> CompletedChain[Any]: ...
    @overload
    async def wait(
        self, id: Chain[OutputT], timeout: Duration | None = None
    ) -> CompletedChain[OutputT]: ...
    @overload
    async def wait(self, id: Id, timeout: Duration | None = None) -> CompletedChain[Any]: ...
    async def wait(self, id: Id, timeout: Duration | None = None) -> CompletedChain[Any]:
        """See `Chains.wait`."""
        record = await self._waiting.wait_async(id, timeout)
        if is_large(record.output or ""):
            return await asyncio.to_thread(self._completed_chain, id, record)
        return self._completed_chain(id, record)

    async def get(self, id: Id, *, tx: AsyncTx | None = None) -> Chain:
        """See `Chains.get`."""
        return await self._client.read_async(self._get(id), tx)

    async def list(
        self,
        filter: str = "",
        *,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: AsyncTx | None = None,
    ) -> Page[Chain]:
        """See `Chains.list`."""
        return await self._client.read_async(self._list(filter, limit, after), tx)

    async def jobs(
        self, id: Id, *, last: int | None = None, tx: AsyncTx | None = None
    ) -> builtins.list[JobInfo]:
        """See `Chains.jobs`."""
        return await self._client.read_async(self._jobs(id, last), tx)

    async def waiting(
        self, id: Id, *, limit: int = PAGE_LENGTH, tx: AsyncTx | None = None
    ) -> builtins.list[BlockerInfo]:
        """See `Chains.waiting`."""
        return await self._client.read_async(self._waiting_jobs(id, limit), tx)
