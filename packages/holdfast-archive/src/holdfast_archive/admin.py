"""The archive for HTTP, pages and the command line: manifests, and the work on them, checked and audited."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec

from holdfast.admin.access import Caller, Gateway, NounAdmin, check
from holdfast.admin.serializers import plain, redact_text, rfc3339
from holdfast.client.pagination import check_length
from holdfast.commands.change import Effect
from holdfast.commands.cycles import request_cycle
from holdfast.core.errors import Aborted, CycleNotFound, InvalidCursor, InvalidId
from holdfast.core.ids import parse_id
from holdfast.core.instants import Instant
from holdfast.settings.load import load_some
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_archive.errors import ArchiveBusy, ArchiveCorrupted
from holdfast_archive.manifest import Manifest, ManifestState, ManifestTotals
from holdfast_archive.manifest_store import MANIFESTS

if TYPE_CHECKING:
    from holdfast_archive import Archive, ArchiveReport, Progress

T = TypeVar("T")
OnProgress = Callable[["Progress"], object]
Operation = Literal["verify", "restore"]

STATES: tuple[ManifestState, ...] = get_args(ManifestState)
PATIENCE_S = 10.0
"""How long a request waits for work on a manifest before it says that the work goes on."""


class ManifestFacts(msgspec.Struct, frozen=True):
    """A manifest as it was at an instant."""

    now: Instant
    manifest: Manifest

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs, without the token: it proves who may write."""
        manifest = self.manifest
        fields = plain(manifest)
        del fields["token"], fields["definition"], fields["expires_at"]
        is_held = manifest.expires_at is not None and manifest.expires_at > self.now
        return {
            "name": manifest.name,
            **fields,
            "objects": msgspec.to_builtins(manifest.objects),
            "error": redact_text(manifest.error),
            "held_until": rfc3339(manifest.expires_at) if is_held else None,
        }


class ManifestPage(msgspec.Struct, frozen=True):
    """Manifests, the newest period first; `next` is the cursor of the following page."""

    now: Instant
    items: list[ManifestFacts]
    next: str | None


class ArchiveOverview(msgspec.Struct, frozen=True):
    """Whether there is a file store, and what it holds of each source."""

    configured: bool
    totals: list[ManifestTotals]

    def as_json(self) -> dict[str, Any]:
        """Return it for programs: a source with its manifests by state, and what is archived of it."""
        sources: dict[str, dict[str, Any]] = {}
        for each in self.totals:
            found = sources.setdefault(
                each.source,
                {"source": each.source, "items": 0, "rows": 0, "bytes": 0, "states": {}},
            )
            found["states"][each.state] = each.manifests
            for field in ("items", "rows", "bytes"):
                found[field] += getattr(each, field)
        return {"configured": self.configured, "sources": list(sources.values())}


class ManifestWork(msgspec.Struct):
    """Work on a manifest in this process: how far it is, and how it ended."""

    operation: Operation
    manifest: str
    step: str = ""
    rows: int = 0
    total: int | None = None
    is_done: bool = False
    error: str | None = None
    inserted: int | None = None
    skipped: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class ArchiveAdmin(NounAdmin):
    """What can be asked about the archive and done with it.

    Work runs in threads. It ends early when its caller is cancelled, or when this is closed.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._works: dict[str, ManifestWork] = {}
        self._tasks: dict[str, asyncio.Task[ManifestWork]] = {}
        self._closing = threading.Event()

    @cached_property
    def archive(self) -> Archive:
        """The application's archive, or one that knows no sources but the files of HOLDFAST_ARCHIVE."""
        from holdfast_archive.engine import Archive
        from holdfast_archive.registration import declared_archive

        app = self._gateway.app
        if declared := declared_archive(app):
            return declared
        files: Any = load_some(("HOLDFAST_ARCHIVE",), {})["HOLDFAST_ARCHIVE"]
        return Archive(lambda: app.database, files)

    async def overview(self, caller: Caller) -> ArchiveOverview:
        """Sum up what is archived."""
        totals = await self._gateway.read(caller, "archive.list", lambda store: MANIFESTS.totals())
        return ArchiveOverview(self.archive.is_configured, totals)

    async def page(
        self,
        caller: Caller,
        source: str | None = None,
        state: ManifestState | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> ManifestPage:
        """Read manifests, the newest period first. Raises: InvalidOption, InvalidCursor."""
        check_length(limit)
        place = None if after is None else _read_cursor(after)

        def op(store: Store) -> Op[tuple[Instant, builtins.list[Manifest]]]:
            now = yield from store.schema.clock()
            return now, (yield from MANIFESTS.page(source, state, limit + 1, place))

        now, found = await self._gateway.read(caller, "archive.list", op)
        items = [ManifestFacts(now, each) for each in found[:limit]]
        return ManifestPage(now, items, found[limit - 1].id if len(found) > limit else None)

    async def get(self, caller: Caller, name: str) -> ManifestFacts:
        """Read a manifest by its id or its name. Raises: ManifestNotFound."""
        check(caller.principal, "archive.list")
        now = await self._gateway.read_unchecked(lambda store: store.schema.clock())
        return ManifestFacts(now, await asyncio.to_thread(self.archive.show, name))

    def work_on(self, manifest: Manifest) -> ManifestWork | None:
        """Return the latest work of this process on a manifest."""
        return self._works.get(manifest.id)

    async def request_run(self, caller: Caller) -> None:
        """Have the next tick of any worker archive what is due. Raises: CycleNotFound."""
        from holdfast_archive.engine import ARCHIVE_CYCLE

        try:
            await self._gateway.run(
                caller, "archive.run", lambda store: request_cycle(store, ARCHIVE_CYCLE, new_id())
            )
        except CycleNotFound as error:
            raise CycleNotFound(
                "no worker has registered an archive",
                help="declare it with `add_archive(app)` and start a worker",
            ) from error

    async def run(
        self,
        caller: Caller,
        source: str | None = None,
        limit: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> ArchiveReport:
        """Archive what is due, in this process. Raises: InvalidOption, Aborted."""
        check(caller.principal, "archive.run")

        def work(watch: OnProgress, stopped: Callable[[], bool]) -> ArchiveReport:
            return self.archive.run(source, limit=limit, on_progress=watch, should_stop=stopped)

        report = await self._in_thread(work, on_progress)
        if report.configured:
            done = {
                each: getattr(report, each) for each in ("periods", "rows", "dropped", "failed")
            }
            await self._gateway.record(caller, "archive.run", Effect("archive", None, done))
        return report

    async def verify(
        self, caller: Caller, name: str, on_progress: OnProgress | None = None
    ) -> ManifestFacts:
        """Compare the objects of a manifest with what was stored. Raises: ArchiveCorrupted, ManifestNotFound."""
        check(caller.principal, "archive.verify")
        before = await asyncio.to_thread(self.archive.show, name)

        def work(watch: OnProgress, _: Callable[[], bool]) -> Manifest:
            return self.archive.verify(before.id, watch)

        try:
            after = await self._in_thread(work, on_progress)
        except ArchiveCorrupted:
            after = await asyncio.to_thread(self.archive.show, before.id)
            await self._record(caller, "archive.verify", before, {"state": after.state})
            raise
        await self._record(caller, "archive.verify", before, {"state": after.state})
        return await self.get(caller, after.id)

    async def restore(
        self,
        caller: Caller,
        name: str,
        into: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Insert the archived rows that are missing. Raises: RestoreConflict, ArchiveCorrupted, ManifestNotFound."""
        check(caller.principal, "archive.restore")
        before = await asyncio.to_thread(self.archive.show, name)
        restored = await self._in_thread(
            lambda watch, _: self.archive.restore(before.id, into=into, on_progress=watch),
            on_progress,
        )
        counts = {"inserted": restored.inserted, "skipped": restored.skipped}
        place = {} if into is None else {"into": into}
        after = {"state": restored.manifest.state, **counts, **place}
        await self._record(caller, "archive.restore", before, after)
        facts = await self.get(caller, before.id)
        return {"manifest": facts.as_json(), **counts, "into": into}

    async def begin(
        self, caller: Caller, operation: Operation, name: str, into: str | None = None
    ) -> ManifestWork:
        """Verify or restore for a request, which does not wait for long: the work may go on when this returns.

        Raises: ArchiveBusy, ManifestNotFound, and what the work raises meanwhile.
        """
        check(caller.principal, f"archive.{operation}")
        manifest = await asyncio.to_thread(self.archive.show, name)
        if manifest.id in self._tasks:
            raise ArchiveBusy(
                f"{self._works[manifest.id].operation} of {manifest.name} is in progress"
            )
        work = self._works[manifest.id] = ManifestWork(operation, manifest.name)
        task = asyncio.create_task(self._work(caller, work, manifest.id, into))
        self._tasks[manifest.id] = task

        def on_end(ended: asyncio.Task[ManifestWork]) -> None:
            del self._tasks[manifest.id]
            if not ended.cancelled():
                # Retrieved, so that asyncio does not log it: the work reports it.
                ended.exception()

        task.add_done_callback(on_end)
        done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
        return task.result() if done else work

    async def close(self) -> None:
        """End work that is in progress; what it did so far is rolled back."""
        self._closing.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(
        self, caller: Caller, work: ManifestWork, id: str, into: str | None
    ) -> ManifestWork:
        def watch(progress: Progress) -> None:
            work.step, work.rows, work.total = progress.step, progress.rows, progress.total

        try:
            if work.operation == "verify":
                await self.verify(caller, id, watch)
            else:
                restored = await self.restore(caller, id, into, watch)
                work.inserted, work.skipped = restored["inserted"], restored["skipped"]
        except Exception as error:
            work.error = redact_text(str(error))
            raise
        finally:
            work.is_done = True
        return work

    async def _in_thread(
        self, work: Callable[[OnProgress, Callable[[], bool]], T], on_progress: OnProgress | None
    ) -> T:
        """Work in a thread. It stops at its next sign of progress when this is cancelled or closed."""
        stopping = threading.Event()

        def is_stopping() -> bool:
            return stopping.is_set() or self._closing.is_set()

        def watch(progress: Progress) -> None:
            if is_stopping():
                raise Aborted("shutdown", "the work on the archive was stopped")
            if on_progress is not None:
                on_progress(progress)

        thread = asyncio.ensure_future(asyncio.to_thread(work, watch, is_stopping))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            stopping.set()
            await asyncio.wait([thread])
            raise

    async def _record(
        self, caller: Caller, action: str, before: Manifest, after: dict[str, Any]
    ) -> None:
        effect = Effect(f"manifest {before.name}", {"state": before.state}, after)
        await self._gateway.record(caller, action, effect)


def _read_cursor(text: str) -> str:
    """Return the manifest that a page ended with."""
    try:
        return str(parse_id(text))
    except InvalidId:
        raise InvalidCursor("the cursor is invalid") from None
