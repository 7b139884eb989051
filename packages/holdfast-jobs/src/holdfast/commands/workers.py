"""Commands on workers and job types: drain a worker; pause, resume and set a type, or pause all of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.commands.change import Change, Effect
from holdfast.commands.explain import MAX_WORKERS
from holdfast.core.errors import InvalidOption, UnknownJobType, WorkerNotFound, nearest
from holdfast.core.lease import (
    MAX_REAPER_INTERVAL_MS,
    MAX_SHUTDOWN_MS,
    Timing,
    check_timing,
    default_heartbeat_ms,
)
from holdfast.core.records import TypeSetting
from holdfast.core.worker_presence import WorkerRecord
from holdfast.notify.base import LOOK_EVERYWHERE, Hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def drain_worker(store: Store, id: str) -> Op[Change[None]]:
    """Ask a worker to take nothing new, finish what it runs, and exit. Raises: WorkerNotFound."""
    if not (yield from store.workers.drain(id)):
        workers = yield from store.workers.page(MAX_WORKERS, live=True)
        raise no_such_worker(id, [each.id for each in workers])
    effect = Effect(f"worker {id}", {"draining": False}, {"draining": True})
    # A worker that checks its leases also checks whether it is to drain.
    return Change(None, [effect], [Hint("lost", worker=id)])


def no_such_worker(id: str, known: Iterable[str]) -> WorkerNotFound:
    """Return the refusal of a worker that is not there, with the one that was probably meant."""
    return WorkerNotFound(f"there is no live worker {id[:60]}", help=nearest(id, known) or None)


UNSET = -1
"""Resets a setting to the value in the code."""

_MAX_MS = 86_400_000
_MAX = 1_000_000


class TypeChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings to change while workers run; None leaves a value, -1 resets it to the code's own."""

    lease_ms: int | None = None
    timeout_ms: int | None = None
    concurrency: int | None = None
    max_attempts: int | None = None

    def check(self) -> None:
        """Refuse values without meaning. Raises: InvalidOption."""
        fields = msgspec.structs.asdict(self)
        given = {name: value for name, value in fields.items() if value is not None}
        if not given:
            raise InvalidOption("nothing to set")
        for name, value in given.items():
            maximum = _MAX_MS if name.endswith("_ms") else _MAX
            if value != UNSET and not 1 <= value <= maximum:
                raise InvalidOption(f"{name}={value} is not between 1 and {maximum}")
        if self.lease_ms is not None and 0 <= self.lease_ms < 100:
            raise InvalidOption(f"a lease of {self.lease_ms} ms is too short; the minimum is 100")


def pause_type(store: Store, type: str, paused: bool, by: str | None) -> Op[Change[TypeSetting]]:
    """Pause or resume a type in the whole fleet. Raises: UnknownJobType."""
    before = yield from read_setting(store, type)
    yield from store.workers.set_type(type, paused=paused, by=by)
    return (yield from _setting_change(store, type, before))


def set_type(store: Store, type: str, change: TypeChange) -> Op[Change[TypeSetting]]:
    """Change settings of a type. Raises: UnknownJobType, InvalidOption; HF018, HF019 if the lease does not fit."""
    change.check()
    before = yield from read_setting(store, type)
    if change.lease_ms is not None and change.lease_ms != UNSET:
        workers = yield from store.workers.page(MAX_WORKERS, live=True)
        check_lease(type, change.lease_ms, workers)
    yield from store.workers.set_type(type, **msgspec.structs.asdict(change))
    return (yield from _setting_change(store, type, before))


def check_lease(type: str, lease_ms: int, workers: Iterable[WorkerRecord]) -> None:
    """Refuse a lease that does not fit the timings of the workers that handle a type. Raises: HF018, HF019.

    They keep the shutdown timeout and the reaper interval that they started with; without workers, the defaults count.
    """
    handlers = [each for each in workers if type in each.types]
    shutdown = _max_of("WORKER_SHUTDOWN_TIMEOUT_MS", "shutdown_ms", MAX_SHUTDOWN_MS, handlers)
    reaper = _max_of(
        "OUTBOX_REAPER_INTERVAL_MS", "reaper_interval_ms", MAX_REAPER_INTERVAL_MS, handlers
    )
    # Their heartbeat follows.
    heartbeat = Timing("OUTBOX_LEASE_HEARTBEAT_MS", default_heartbeat_ms(lease_ms))
    lease = Timing(f"lease of {type}", lease_ms, "set at run time")
    check_timing([lease], heartbeat, shutdown, reaper)


def _max_of(name: str, key: str, default: int, workers: Iterable[WorkerRecord]) -> Timing:
    found = [Timing(name, each.timings.get(key, default), each.id) for each in workers]
    return max(found, key=lambda each: each.ms, default=Timing(name, default, "default"))


def pause_all(store: Store, paused: bool, by: str | None) -> Op[Change[None]]:
    """Pause or resume every type."""
    before = yield from store.schema.identity()
    yield from store.schema.pause(paused, by)
    was = {"paused": before.paused} if before else None
    return Change(None, [Effect("everything", was, {"paused": paused})], [LOOK_EVERYWHERE])


def read_setting(store: Store, type: str) -> Op[TypeSetting]:
    """Read the settings of a type that was ever started, handled or set. Raises: UnknownJobType."""
    settings = {each.type: each for each in (yield from store.workers.settings())}
    if type not in settings:
        totals = yield from store.workers.type_totals()
        workers = yield from store.workers.page(MAX_WORKERS)
        workers += yield from store.workers.page(MAX_WORKERS, live=True)
        known = {*(each.type for each in totals), *(each for one in workers for each in one.types)}
        if type not in known:
            raise unknown_type(type, known)
    return settings.get(type) or TypeSetting(type)


def unknown_type(type: str, known: Iterable[str]) -> UnknownJobType:
    """Return the refusal of a type that was never started, handled or set, with the name that was probably meant."""
    return UnknownJobType(
        f"no job type {type[:60]!r} in this database",
        help=nearest(type, known) or "see `holdfast types list`",
    )


def _setting_change(store: Store, type: str, before: TypeSetting) -> Op[Change[TypeSetting]]:
    after = yield from read_setting(store, type)
    return Change(after, [Effect(f"type {type}", before, after)], [Hint("look", type)])
