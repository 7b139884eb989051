"""`add_large_values(app, files=…)`: large inputs, results and step results in files instead of in their rows.

A row has a reference: the file and the size. A file is named by the day it was written and the SHA-256 of its content,
so that equal contents of a day share one, and no writer ever takes up a file that is old enough to be removed. It is
stored before the row that names it; what no row names is removed by `value_upkeep`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from holdfast.commands.debounce import Unsealed
from holdfast.commands.start import StartRequest
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption, SealError
from holdfast.core.records import ClaimedJob, Finish, NewJob
from holdfast.core.sealing import (
    NEVER_LARGE,
    PayloadStore,
    Sealed,
    Sealer,
    check_sealer,
    is_large,
    is_sealed,
    key_id,
    missing_key,
)
from holdfast_files.errors import (
    FilesError,
    LargeValueChanged,
    LargeValueMissing,
    LargeValuesUnreachable,
    ObjectCorrupted,
    ObjectNotFound,
)
from holdfast_files.file_stores import open_files
from holdfast_files.files import Files
from holdfast_files.keys import check_prefix

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.app.registration import CycleOptions

ATTACHED = "large_values"
DEFAULT_OVER = "256KB"
DEFAULT_UP_TO = "100MB"
DEFAULT_PREFIX = CYCLE = "large-values"
DEFAULT_GRACE = "1d"
SHORTEST_GRACE_S = 3_600
UPKEEP_EVERY, UPKEEP_TIMEOUT = "6h", "1h"
SMALLEST = 4 * NEVER_LARGE
"""A reference takes some two hundred bytes itself."""
LARGEST = 1024**3

_SIZE = re.compile(r"(\d{1,12}) ?(B|KB|MB|GB)", re.IGNORECASE)
_FACTORS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_FILE = re.compile(r"\d{4}-\d\d-\d\d/[0-9a-f]{64}")


class ValueReference(msgspec.Struct, frozen=True):
    """A large value: how many bytes it has, the SHA-256 of them in hex, and the day, in UTC, whose file has them."""

    size: int
    sha256: str
    day: str

    @property
    def file(self) -> str:
        """The file's place below the prefix."""
        return f"{self.day}/{self.sha256}"


class _ReferenceText(msgspec.Struct, rename={"large": "$large"}):
    large: ValueReference


class _SealedReferenceText(msgspec.Struct, rename={"sealed": "$sealed", "large": "$large"}):
    sealed: Sealed
    large: ValueReference


_decoder = msgspec.json.Decoder(_ReferenceText)


def read_reference(text: str | None) -> ValueReference | None:
    """Return the reference that a stored payload is, None for any other."""
    if text is None or not is_large(text):
        return None
    try:
        found = _decoder.decode(text).large
    except msgspec.MsgspecError:
        return None
    return found if is_value_file(found.file) else None


def is_value_file(file: str) -> bool:
    """Whether this is the place of a large value below its prefix."""
    return _FILE.fullmatch(file) is not None


class LargeValues(PayloadStore):
    """The large values of an application. Threads may share it."""

    def __init__(
        self,
        files: Files,
        over: int,
        prefix: str,
        sealer: Sealer | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use `add_large_values` instead."""
        self.files = files
        self.over = over
        self.prefix = prefix
        self.sealer = sealer
        self.clock = clock

    # ---- Sealing, as without large values

    def seal(self, plain: bytes, bound_to: bytes) -> Sealed:
        """See `Sealer.seal`."""
        return check_sealer(self.sealer, "").seal(plain, bound_to)

    def open(self, sealed: Sealed, bound_to: bytes) -> bytes:
        """See `Sealer.open`."""
        if self.sealer is None:
            raise missing_key(sealed.key)
        return self.sealer.open(sealed, bound_to)

    # ---- Writing

    def find_large(self, records: list[Any]) -> Callable[[], list[Any]] | None:
        """See `PayloadStore.find_large`: starts, jobs, ends of attempts, and records of steps."""
        for each in records:
            if self._has_large(each):
                return lambda: self._keep_all(records)
        return None

    async def keep(self, records: list[Any]) -> None:
        """Store the large values of records in a thread."""
        keep_all = self.find_large(records)
        if keep_all is not None:
            await asyncio.to_thread(keep_all)

    def store(self, text: str) -> str:
        """Store a payload, sealed or not, and return the reference to it. Raises: FilesError."""
        raw = text.encode()
        day = datetime.fromtimestamp(self.clock(), UTC).strftime("%Y-%m-%d")
        reference = ValueReference(len(raw), hashlib.sha256(raw).hexdigest(), day)
        # Also if it is there: a content that has gone bad is replaced by a good one.
        self.files.put(self.key_of(reference), raw, "application/json")
        if not is_sealed(text):
            return msgspec.json.encode(_ReferenceText(reference)).decode()
        sealed = Sealed(key_id(text) or "?", b"")
        return msgspec.json.encode(_SealedReferenceText(sealed, reference)).decode()

    def _is_over(self, text: str | None) -> bool:
        # A character has four bytes at most; nearly all payloads are far from the limit.
        if text is None or len(text) * 4 <= self.over or is_large(text):
            return False
        return len(text) > self.over or (not text.isascii() and len(text.encode()) > self.over)

    def _has_large(self, record: Any) -> bool:
        if isinstance(record, Finish):
            return self._is_over(record.output if record.next is None else record.next.input)
        if isinstance(record, StartRequest):
            return self._is_over(record.job.input)
        if isinstance(record, NewJob):
            return self._is_over(record.input)
        return self._is_over(record.output)

    def _keep_all(self, records: list[Any]) -> list[Any]:
        # Equal contents of one call are stored once.
        known: dict[str, str] = {}

        def store(text: str) -> str:
            if text not in known:
                known[text] = self.store(text)
            return known[text]

        for place, record in enumerate(records):
            if self._has_large(record):
                records[place] = self._with_reference(record, store)
        return []

    def _with_reference(self, record: Any, store: Callable[[str], str]) -> Any:
        if isinstance(record, StartRequest):
            return self._kept_start(record, store)
        if isinstance(record, NewJob):
            return msgspec.structs.replace(record, input=store(record.input))
        if not isinstance(record, Finish):
            return msgspec.structs.replace(record, output=store(record.output))
        # The one who writes it holds this very object.
        if record.next is not None:
            record.next = msgspec.structs.replace(record.next, input=store(record.next.input))
        else:
            record.output = store(record.output or "null")
        return record

    def _kept_start(self, start: StartRequest, store: Callable[[str], str]) -> StartRequest:
        """Return a start with a reference; a debounced one may become that of another job, and is sealed anew then."""
        job = msgspec.structs.replace(start.job, input=store(start.job.input))
        seal = None if start.unsealed is None else start.unsealed.seal

        def store_for(id: str, text: str) -> str:
            return job.input if seal is None else self.store(seal(id, text))

        unsealed = Unsealed(start.clear_input, store_for)
        return msgspec.structs.replace(start, job=job, unsealed=unsealed)

    # ---- Reading

    async def restore(self, records: list[Any]) -> None:
        """Replace references by what they name, in a thread. Raises: SealError, with the job that needs it."""
        if any(is_large(_text_of(each)) for each in records):
            await asyncio.to_thread(self._restore, records)

    def fetch(self, reference: str) -> str:
        """Return the stored payload that a reference names, checked against its digest. Raises: SealError."""
        return self.read(reference).decode()

    def read(self, text: str) -> bytes:
        """Return the content that a reference names. Raises: SealError."""
        reference = read_reference(text)
        if reference is None:
            raise LargeValueMissing("the reference to a large value is damaged")
        try:
            return self.files.get(self.key_of(reference), sha256=reference.sha256)
        except ObjectNotFound as error:
            raise LargeValueMissing(f"there is no file {self.key_of(reference)}") from error
        except ObjectCorrupted as error:
            raise LargeValueChanged(f"{self.key_of(reference)} was changed") from error
        except FilesError as error:
            raise LargeValuesUnreachable(f"{error.message} ({error.code})") from error

    def key_of(self, reference: ValueReference) -> str:
        """Return the key of a file."""
        return f"{self.prefix}/{reference.file}"

    def _restore(self, records: list[Any]) -> None:
        for place, record in enumerate(records):
            text = _text_of(record)
            if not is_large(text):
                continue
            try:
                found = self.fetch(text)
            except SealError as error:
                error.job_id = record.id if isinstance(record, ClaimedJob) else record.job_id
                raise
            if isinstance(record, ClaimedJob):
                record.input = found
            else:
                records[place] = msgspec.structs.replace(record, output=found)


def _text_of(record: Any) -> str:
    return (record.input if isinstance(record, ClaimedJob) else record.output) or ""


def add_large_values(
    app: Holdfast,
    files: Files | str,
    *,
    over: int | str = DEFAULT_OVER,
    up_to: int | str = DEFAULT_UP_TO,
    prefix: str = DEFAULT_PREFIX,
    grace: Duration = DEFAULT_GRACE,
    **upkeep: Unpack[CycleOptions],
) -> LargeValues:
    """Keep inputs and results over a size in files. Call it before the first handler is registered.

    files: a file store or its URL, the same in every process of the application. over: from which size on, in bytes or
    as in "256KB"; at most the limit of an input, which remains that of values in rows. up_to: how large they may be.
    prefix: the folder of the files, which belongs to this application's database alone. grace: how long a file that no
    row names is kept after its day, an hour or more; longer than any transaction that starts jobs. The options of a
    cycle say when unused files are removed; by default every six hours.

    Raises: InvalidOption, InvalidDuration, InvalidSchedule, ConfigError, InvalidObjectKey, CredentialsMissing,
    MissingExtra, DuplicateCycle.
    """
    from holdfast_files.value_upkeep import ValueUpkeep

    if ATTACHED in app.attached:
        raise InvalidOption("the application already has large values", help="call it once")
    if len(app.registry):
        raise InvalidOption(
            "handlers that were registered before it would not have large values",
            help="call add_large_values right after Holdfast(…)",
        )
    smallest, largest = size_of("over", over), size_of("up_to", up_to)
    if not SMALLEST <= smallest <= app.targets.limit:
        raise InvalidOption(
            f"over= is {smallest} bytes",
            help=f"use {SMALLEST} to {app.targets.limit} bytes, the limit of an input in a row",
        )
    if not app.targets.limit <= largest <= LARGEST:
        raise InvalidOption(
            f"up_to= is {largest} bytes",
            help=f"use {app.targets.limit} bytes, the limit without files, to 1GB",
        )
    folder = check_prefix(prefix)
    if not folder:
        raise InvalidOption("large values need a folder of their own", help="omit prefix=")

    grace_s = milliseconds(grace) / 1000
    if grace_s < SHORTEST_GRACE_S:
        raise InvalidOption(f"grace= is {grace_s:g} seconds", help="use an hour or more")

    def now() -> float:
        instant = app.instant()
        return time.time() if instant is None else instant / 1_000_000

    store = files if isinstance(files, Files) else open_files(files)
    if upkeep.get("every") is None and upkeep.get("cron") is None:
        upkeep["every"] = UPKEEP_EVERY
    upkeep.setdefault("timeout", UPKEEP_TIMEOUT)
    values = LargeValues(store, smallest, folder, app.registry.sealer, now)
    app.registry.sealer = app.client.sealer = values
    app.targets.limit = app.targets.output_limit = largest
    app.attached[ATTACHED] = values
    app.cycle(CYCLE, **upkeep)(ValueUpkeep(values, lambda: app.database, grace_s).handle)
    return values


def large_values_of(app: Holdfast) -> LargeValues | None:
    """Return the large values of an application, if it has them."""
    found: LargeValues | None = app.attached.get(ATTACHED)
    return found


def size_of(option: str, given: int | str) -> int:
    """Return a size in bytes. Raises: InvalidOption."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    match = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    if match is None:
        raise InvalidOption(
            f"{option}={repr(given)[:40]} is no size", help='use bytes, or a text as in "256KB"'
        )
    return int(match[1]) * _FACTORS[match[2].upper()]
