"""Removing the files of large values that no row names: those of removed jobs, and of transactions that did not commit.

A file is looked at once it is older than any transaction that may still name it: its day is over, and so is the grace
time. It is removed when two looks, some time apart, have found no row that names it: what moves from one row to another
during one of them is seen by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands.identity import check_identity
from holdfast.commands.retention import FIRST_ID
from holdfast.core.errors import WrongState
from holdfast.storage.operation import Op, Statement, Value
from holdfast_files.errors import LargeValuesShared, ObjectNotFound
from holdfast_files.large_values import LargeValues, is_value_file, read_reference

if TYPE_CHECKING:
    from holdfast.scheduler.cycle_run import CycleRun
    from holdfast.storage.database import Database

PAGE = 2_000
LOOKS_APART_S = 3_600.0
_DAY_S = 86_400.0
_OWNER, _UNUSED = "owner.json", "unused.json"
_BY_JOB = ("large_value_inputs", "large_value_outputs", "large_value_steps")


class UpkeepReport(msgspec.Struct):
    """What a run saw and did: files looked at, newly found unused, and removed, with their bytes."""

    looked: int = 0
    unused: int = 0
    removed: int = 0
    bytes: int = 0


class _Owner(msgspec.Struct):
    database: str


class ValueUpkeep:
    """Removes unused files of an application's large values."""

    def __init__(
        self, values: LargeValues, database: Callable[[], Database], grace_s: float
    ) -> None:
        self._values = values
        self._database = database
        self._grace_s = grace_s

    def handle(self, run: CycleRun) -> None:
        """Handle a run of the cycle."""
        report = self.remove_unused(run.room(1_000_000), lambda: run.aborted)
        run.count("processed", report.removed)
        for name in ("looked", "unused", "bytes"):
            run.count(name, getattr(report, name))

    def remove_unused(
        self, limit: int = 1_000_000, should_stop: Callable[[], bool] = lambda: False
    ) -> UpkeepReport:
        """Look for files that no row names, and remove those that an earlier look had found unused too.

        Raises: LargeValuesShared, CopiedDatabase, FilesError, and the database's errors.
        """
        report = UpkeepReport()
        self._check_owner()
        sizes = self._old_files()
        report.looked = len(sizes)
        seen_before, now = self._read_unused(), self._values.clock()
        unused = self._find_unused(set(sizes), should_stop) if sizes else set()
        if unused is None:
            return report
        found = {file: seen_before.get(file, now) for file in unused}
        doomed = sorted(file for file, since in found.items() if now - since >= LOOKS_APART_S)
        for file in doomed[:limit]:
            if should_stop():
                break
            self._values.files.delete(self._key(file))
            del found[file]
            report.removed += 1
            report.bytes += sizes[file]
        report.unused = sum(since == now for since in found.values())
        if found or seen_before:
            self._values.files.put(self._key(_UNUSED), msgspec.json.encode(found))
        return report

    def _key(self, name: str) -> str:
        return f"{self._values.prefix}/{name}"

    def _check_owner(self) -> None:
        """Refuse to remove what another database may name. The first that looks is the owner."""
        identity = self._database().read(check_identity(self._database().store))
        if identity is None:
            raise WrongState("the database has no identity", help="run `holdfast migrate`")
        files, key = self._values.files, self._key(_OWNER)
        try:
            owner = msgspec.json.decode(files.get(key), type=_Owner).database
        except ObjectNotFound:
            owner = identity.id
            files.put_once(key, msgspec.json.encode(_Owner(identity.id)), "application/json")
        if owner != identity.id:
            raise LargeValuesShared(
                f"{self._values.prefix} belongs to the database {owner}, this one is {identity.id}"
            )

    def _old_files(self) -> dict[str, int]:
        """Return the files whose day and grace time are over, with their sizes."""
        before = self._values.clock() - self._grace_s - _DAY_S
        found = {}
        for each in self._values.files.list(self._values.prefix):
            file = each.key.removeprefix(f"{self._values.prefix}/")
            if is_value_file(file) and _begin_of(file) <= before:
                found[file] = each.size
        return found

    def _read_unused(self) -> dict[str, float]:
        try:
            return msgspec.json.decode(
                self._values.files.get(self._key(_UNUSED)), type=dict[str, float]
            )
        except ObjectNotFound:
            return {}

    def _find_unused(self, files: set[str], should_stop: Callable[[], bool]) -> set[str] | None:
        """Return those of the files that no row names; None if it was stopped before all rows were seen."""
        for texts in self._references():
            for text in texts:
                reference = read_reference(text)
                if reference is not None:
                    files.discard(reference.file)
            if should_stop():
                return None
            if not files:
                break
        return files

    def _references(self) -> Iterator[list[str]]:
        """Yield what rows name. First where it may be moved away from, and last where it is moved to."""
        yield from self._walk("large_value_revisions", {"after": FIRST_ID})
        yield from self._walk_events()
        yield self._page("large_value_parked", {})[1]
        for name in _BY_JOB:
            yield from self._walk(name, {"after": FIRST_ID})

    def _walk(self, name: str, params: dict[str, Value]) -> Iterator[list[str]]:
        while True:
            end, texts = self._page(name, {**params, "limit": PAGE})
            yield texts
            if end is None:
                return
            params = {"after": end}

    def _walk_events(self) -> Iterator[list[str]]:
        line, place = -1, 0
        while True:
            params = {"line": line, "place": place, "limit": PAGE}
            end, texts = self._page("large_value_events", params)
            yield texts
            if end is None:
                return
            line, place = msgspec.json.decode(end, type=tuple[int, int])

    def _page(self, name: str, params: Mapping[str, Value]) -> tuple[str | None, list[str]]:
        def op() -> Op[tuple[str | None, list[str]]]:
            ((end, texts),) = yield Statement(name, params)
            return end, msgspec.json.decode(texts, type=list[str])

        return self._database().read(op())


def _begin_of(file: str) -> float:
    return datetime.strptime(file[:10], "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
