"""`add_groups(app)`: groups in the caller's transaction, sync and async."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Unpack, overload

from holdfast.client.adapters.base import AsyncTx, SyncTx
from holdfast.client.start_options import Id, SharedOptions, id_text, id_texts
from holdfast.client.views import Chain
from holdfast.core.errors import InvalidOption
from holdfast.core.registry import Target
from holdfast.worker.job import Job
from holdfast_groups.progress import GroupProgress, cancel_group, read_progress, read_progress_of

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_ATTACHED = "groups"
END = "holdfast.group"
"""The type of the job that ends a group for which nothing else is to be done."""


def add_groups(app: Holdfast) -> JobGroups:
    """Give an application groups; called again, return the same ones. Its workers run what follows them."""
    found: JobGroups | None = app.attached.get(_ATTACHED)
    if found is None:
        found = app.attached[_ATTACHED] = JobGroups(app)
        if END not in app.registry:
            app.job(END)(_end)
    return found


async def _end(job: Job[Any]) -> None:
    """Do nothing: that it runs says that the group has ended."""


class AsyncJobGroups:
    """Async version of the reads of `JobGroups`."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def progress(self, group: Id, *, tx: AsyncTx | None = None) -> GroupProgress:
        """See `JobGroups.progress`."""
        client = self._app.client
        return await client.read_async(read_progress(client.store, id_text(group)), tx)

    async def progress_of(
        self, chains: Iterable[Id], *, tx: AsyncTx | None = None
    ) -> GroupProgress:
        """See `JobGroups.progress_of`."""
        return await self._app.client.read_async(read_progress_of(id_texts(chains)), tx)


class JobGroups:
    """Groups of an application. What changes one takes the caller's transaction; with an async one, await it."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.aio = AsyncJobGroups(app)
        """The reads, for `await`."""

    @overload
    def start(
        self,
        tx: SyncTx,
        target: Target,
        inputs: Iterable[Any],
        *,
        on_complete: Target | None = ...,
        input: Any = ...,
        **options: Unpack[SharedOptions],
    ) -> Chain: ...
    @overload
    def start(
        self,
        tx: AsyncTx,
        target: Target,
        inputs: Iterable[Any],
        *,
        on_complete: Target | None = ...,
        input: Any = ...,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, Chain]: ...
    def start(
        self,
        tx: Any,
        target: Target,
        inputs: Iterable[Any],
        *,
        on_complete: Target | None = None,
        input: Any = None,
        **options: Unpack[SharedOptions],
    ) -> Any:
        """Start a chain for each input, and one job that follows when all of them have ended; return that one.

        `on_complete` is called with `input`, whatever became of the chains: `job.blockers` says how each ended. Its
        chain is the group: wait for it, ask for its progress, cancel it. The options are those of the chains.

        Raises: as `app.start_many`, and InvalidOption without inputs, or for an `input` that no `on_complete` gets;
        nothing is written then.
        """
        if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Iterable):
            raise InvalidOption(f"{repr(inputs)[:60]} is not a list of inputs")
        if input is not None and on_complete is None:
            raise InvalidOption("there is no on_complete that would get the input")
        wanted = list(inputs)
        if not wanted:
            raise InvalidOption(
                "a group needs at least one input",
                help="without inputs, start on_complete by itself instead",
            )
        follower = END if on_complete is None else on_complete
        app = self._app
        started: Any = app.start_many(tx, target, wanted, **options)
        if not isinstance(started, Coroutine):
            return self._follow(tx, follower, input, started)

        async def start() -> Chain:
            chain: Chain = await self._follow(tx, follower, input, await started)
            return chain

        return start()

    def _follow(self, tx: Any, follower: Target, input: Any, parts: list[Chain]) -> Any:
        blockers = list(dict.fromkeys(each.id for each in parts))
        return self._app.start(tx, follower, input, blockers=blockers, on_blocker_failure="run")

    @overload
    def cancel(self, tx: SyncTx, group: Id, reason: str = "") -> int: ...
    @overload
    def cancel(self, tx: AsyncTx, group: Id, reason: str = "") -> Coroutine[Any, Any, int]: ...
    def cancel(self, tx: Any, group: Id, reason: str = "") -> Any:
        """Cancel all chains of a group that have not ended, and what follows them; return how many chains that were.

        Running handlers get their abort signal. Raises: ChainNotFound, InvalidId.
        """
        wanted = id_text(group)
        return self._app.client.write(tx, lambda store, _: cancel_group(store, wanted, reason))

    def progress(self, group: Id, *, tx: SyncTx | None = None) -> GroupProgress:
        """Read how far a group is, in one statement. Raises: ChainNotFound, InvalidId."""
        client = self._app.client
        return client.read(read_progress(client.store, id_text(group)), tx)

    def progress_of(self, chains: Iterable[Id], *, tx: SyncTx | None = None) -> GroupProgress:
        """Read how far any chains are, in one statement; those that do not exist are left out. Raises: InvalidId."""
        return self._app.client.read(read_progress_of(id_texts(chains)), tx)
