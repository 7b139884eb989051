"""What exports, drops, checks and restores share: manifests held under a renewed token, progress, fetched objects."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.core.errors import Aborted, HoldfastError, LeaseLost
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast_archive.errors import ArchiveBusy, ArchiveCorrupted
from holdfast_archive.manifest import ArchivedObject, Manifest, ManifestState
from holdfast_archive.manifest_store import ARCHIVING
from holdfast_archive.parquet_file import ParquetFileReader
from holdfast_archive.progress import Now, OnProgress, Progress, Step, ignore_progress, never
from holdfast_archive.table_access import TableAccess
from holdfast_files.errors import ObjectCorrupted, ObjectNotFound
from holdfast_files.files import Files

FOLDER = "holdfast-archive-"
IN_USE = "in-use"
NEW_S = 60
"""A temporary folder younger than this may not be locked yet."""
UNLOCKED_S = 2 * 86_400
"""One of this age without the file to lock belongs to a process of an earlier version that was killed."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is gone afterwards; if this process is killed, the next run removes it."""
    with tempfile.TemporaryDirectory(prefix=FOLDER) as name:
        folder = Path(name)
        with (folder / IN_USE).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield folder


def remove_abandoned_folders() -> None:
    """Remove what killed processes left in the temporary directory; what belongs to others stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with suppress(OSError):
            if _is_abandoned(folder, time.time() - folder.stat().st_mtime):
                shutil.rmtree(folder)


def _is_abandoned(folder: Path, age_s: float) -> bool:
    """Raises: BlockingIOError for one that is in use."""
    try:
        with (folder / IN_USE).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return age_s > NEW_S
    except FileNotFoundError:
        return age_s > UNLOCKED_S


class Hold:
    """A manifest that this process works on, and the token under which it is held."""

    def __init__(self, manifest: Manifest, token: str) -> None:
        self.manifest = manifest
        self.token = token
        self._is_lost = False

    def lose(self) -> None:
        """Note that another process has it."""
        self._is_lost = True

    def check(self, is_held: bool = True) -> None:
        """Raises: LeaseLost when another process has taken the manifest over."""
        if self._is_lost or not is_held:
            self._is_lost = True
            raise LeaseLost("lease_lost", f"another process has taken over {self.manifest.name}")


@contextmanager
def keep_renewed(database: Database, hold: Hold, lease_ms: int, now: Now) -> Iterator[Hold]:
    """Renew a hold until the block ends."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(lease_ms / 3_000):
            # A database that is busy or away may be back before the lease has expired.
            with suppress(HoldfastError):
                op = ARCHIVING.renew(hold.manifest.id, hold.token, lease_ms, now())
                if not database.run(op):
                    hold.lose()
                    return

    thread = threading.Thread(target=renew, name="holdfast archive lease", daemon=True)
    thread.start()
    try:
        yield hold
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of the archive works with."""

    database: Database
    files: Files
    access: TableAccess
    now: Now
    lease_ms: int
    on_progress: OnProgress = ignore_progress
    should_stop: Callable[[], bool] = never

    def report(self, hold: Hold, step: Step, rows: int, total: int | None = None) -> None:
        """Report progress. Raises: LeaseLost, and Aborted when the work is to stop."""
        hold.check()
        self.on_progress(Progress(step, hold.manifest.name, rows, total))
        if self.should_stop():
            raise Aborted("shutdown", "the archive was asked to stop")

    @contextmanager
    def hold(self, manifest: Manifest, states: Sequence[ManifestState]) -> Iterator[Hold]:
        """Hold a manifest that is in one of the states. Raises: ArchiveBusy."""
        token = new_id()
        op = ARCHIVING.hold(manifest.id, states, token, self.lease_ms, self.now())
        held = self.database.run(op)
        if held is None:
            raise ArchiveBusy(f"{manifest.name} is in use, or no longer {' or '.join(states)}")
        with keep_renewed(self.database, Hold(held, token), self.lease_ms, self.now) as hold:
            yield hold

    def give_up(self, hold: Hold, reason: str | None, state: ManifestState | None = None) -> None:
        """Release a manifest after a failure; where that fails too, its lease expires."""
        archiving, id = ARCHIVING, hold.manifest.id
        with suppress(HoldfastError):
            self.database.run(archiving.release(id, hold.token, reason, state, self.now()))

    @contextmanager
    def fetch_all(self, hold: Hold) -> Iterator[dict[str, ParquetFileReader]]:
        """Read back every object of a manifest, compare it, and open the copies. Raises: ArchiveCorrupted."""
        readers: dict[str, ParquetFileReader] = {}
        with temporary_folder() as folder:
            try:
                done = 0
                for place, each in enumerate(hold.manifest.objects):
                    self.report(hold, "verify", done, hold.manifest.rows)
                    readers[each.table] = self.fetch(each, folder / str(place))
                    done += each.rows
                yield readers
            finally:
                for reader in readers.values():
                    reader.__exit__()

    def fetch(self, found: ArchivedObject, path: Path) -> ParquetFileReader:
        """Copy an object to a local file and compare size, SHA-256 and rows. Raises: ArchiveCorrupted, FilesError."""
        try:
            with path.open("wb") as file:
                for block in self.files.stream(found.key, sha256=found.sha256):
                    file.write(block)
        except ObjectNotFound as error:
            raise ArchiveCorrupted(f"{found.key} is missing") from error
        except ObjectCorrupted as error:
            raise ArchiveCorrupted(error.message) from error
        if path.stat().st_size != found.bytes:
            raise ArchiveCorrupted(
                f"{found.key} has {path.stat().st_size} bytes, expected {found.bytes}"
            )
        try:
            reader = ParquetFileReader(path)
        except pa.ArrowException as error:
            raise ArchiveCorrupted(f"{found.key} is not a Parquet file") from error
        if reader.rows != found.rows:
            reader.__exit__()
            raise ArchiveCorrupted(f"{found.key} has {reader.rows} rows, expected {found.rows}")
        return reader
