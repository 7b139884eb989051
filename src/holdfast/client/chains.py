"""The noun `chains`: reading them, writing to them and waiting for them, in either colour."""

from __future__ import annotations

import builtins

import msgspec

from holdfast.client.chain_writes import ChainWrites
from holdfast.client.client import Client
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.listing import PAGE_LENGTH, read_page
from holdfast.client.options import Id, id_text
from holdfast.client.query import check_length
from holdfast.client.targets import Targets
from holdfast.client.views import BlockerInfo, Chain, JobInfo, Page, blocker_of, chain_of, job_of
from holdfast.client.waiting import Waiting
from holdfast.core.duration import Duration
from holdfast.core.errors import ChainNotFound
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class ChainReads:
    """What can be asked about chains, without colour."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, id: Id) -> Op[Chain]:
        wanted = id_text(id)
        records = yield from self._store.chains.get([wanted])
        if not records:
            raise ChainNotFound(f"there is no chain {wanted}")
        return chain_of(records[0])

    def list(self, filter: str, limit: int, after: str | None) -> Op[Page[Chain]]:
        return read_page("chains", filter, limit, after, self._store.chains.walk, chain_of)

    def jobs(self, id: Id) -> Op[builtins.list[JobInfo]]:
        wanted = id_text(id)
        records = yield from self._store.chains.jobs(wanted)
        if not records:
            raise ChainNotFound(f"there is no chain {wanted}")
        return [job_of(each) for each in records]

    def waiting(self, id: Id, limit: int) -> Op[builtins.list[BlockerInfo]]:
        wanted = id_text(id)
        chain = yield from self.get(wanted)
        edges = yield from self._store.blockers.waiting(wanted, check_length(limit))
        shown = [blocker_of(each) for each in edges]
        return [msgspec.structs.replace(each, state=chain.state) for each in shown]


class Chains(ChainWrites):
    """Reads chains, on a connection of ours or, with `tx`, inside the caller's transaction; writes take it first."""

    def __init__(self, client: Client, targets: Targets, waiting: Waiting) -> None:
        super().__init__(client, targets)
        self._client = client
        self._reads = ChainReads(client.store)
        self._waiting = waiting

    def wait(self, id: Id, timeout: Duration | None = None) -> Chain:
        """Block until a chain has completed, woken by hints.

        Raises: WaitTimeout, ChainFailed, ChainCancelled, ChainDeleted, ChainNotFound.
        """
        return self._waiting.wait(id, timeout)

    def get(self, id: Id, *, tx: SyncTx | None = None) -> Chain:
        """Read a chain. Raises: ChainNotFound, InvalidId."""
        return self._client.read(self._reads.get(id), tx)

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
        return self._client.read(self._reads.list(filter, limit, after), tx)

    def jobs(self, id: Id, *, tx: SyncTx | None = None) -> builtins.list[JobInfo]:
        """Read the jobs of a chain in their order. Raises: ChainNotFound, InvalidId."""
        return self._client.read(self._reads.jobs(id), tx)

    def waiting(
        self, id: Id, *, limit: int = PAGE_LENGTH, tx: SyncTx | None = None
    ) -> builtins.list[BlockerInfo]:
        """Read which jobs wait for a chain, or waited for it. Raises: ChainNotFound, InvalidId, InvalidOption."""
        return self._client.read(self._reads.waiting(id, limit), tx)


class AsyncChains(ChainWrites):
    """See `Chains`; the same operations in the other colour."""

    def __init__(self, client: Client, targets: Targets, waiting: Waiting) -> None:
        super().__init__(client, targets)
        self._client = client
        self._reads = ChainReads(client.store)
        self._waiting = waiting

    async def wait(self, id: Id, timeout: Duration | None = None) -> Chain:
        """See `Chains.wait`."""
        return await self._waiting.wait_async(id, timeout)

    async def get(self, id: Id, *, tx: AsyncTx | None = None) -> Chain:
        """See `Chains.get`."""
        return await self._client.read_async(self._reads.get(id), tx)

    async def list(
        self,
        filter: str = "",
        *,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: AsyncTx | None = None,
    ) -> Page[Chain]:
        """See `Chains.list`."""
        return await self._client.read_async(self._reads.list(filter, limit, after), tx)

    async def jobs(self, id: Id, *, tx: AsyncTx | None = None) -> builtins.list[JobInfo]:
        """See `Chains.jobs`."""
        return await self._client.read_async(self._reads.jobs(id), tx)

    async def waiting(
        self, id: Id, *, limit: int = PAGE_LENGTH, tx: AsyncTx | None = None
    ) -> builtins.list[BlockerInfo]:
        """See `Chains.waiting`."""
        return await self._client.read_async(self._reads.waiting(id, limit), tx)
