"""Rows of your own table, kept while a block works on them: a thread renews their lease and reports what was lost."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.client.adapters.base import AsyncTx, SyncTx
from holdfast.core.duration import Duration
from holdfast.core.errors import LeaseLost
from holdfast.core.instants import Instant
from holdfast.core.lease import default_heartbeat_ms, local_deadline_ms

if TYPE_CHECKING:
    from holdfast_leases import AsyncLeasedTable, LeasedTable, Retried

log = logging.getLogger("holdfast.contrib")

RETRY_S = 1.0
"""How soon a renewal that failed is tried again, unless the heartbeat is faster."""


class TransactionSource(Protocol):
    """What opens transactions: the run of a cycle, or the application."""

    def transaction(self) -> AbstractContextManager[Any]: ...


class Renewal:
    """Renews a claim from a thread of its own, so that a handler which blocks its event loop keeps its rows.

    It ends with the block, when the run it belongs to is aborted, or when everything is lost.
    """

    def __init__(
        self,
        renew: Callable[[], set[Any]],
        source: TransactionSource,
        keys: frozenset[Any],
        lease_ms: int,
        on_lost: Callable[[frozenset[Any]], object] | None,
    ) -> None:
        self.source = source
        self._renew = renew
        self._lease_ms = lease_ms
        self._beat_s = default_heartbeat_ms(lease_ms) / 1000
        self._on_lost = on_lost
        self._open = set(keys)
        self._lost: frozenset[Any] = frozenset()
        self._reason = ""
        self._deadline = self._deadline_from(time.monotonic())
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast kept rows", daemon=True)

    @property
    def lost(self) -> frozenset[Any]:
        return self._lost

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def join(self) -> None:
        self._thread.join()

    def check(self) -> None:
        """Raise what the handler must know: Aborted of its run, or LeaseLost."""
        checkpoint = getattr(self.source, "checkpoint", None)
        if checkpoint is not None:
            checkpoint()
        if self._lost:
            raise LeaseLost(self._reason, f"{len(self._lost)} of the claimed rows were lost")

    def close(self, done: set[Any], wanted: set[Any]) -> None:
        """Expect no longer to hold rows that were finished; those that could not be are lost."""
        with self._lock:
            self._open -= done
            lost = self._take_lost(self._open & wanted, "taken_by_another_worker")
        self._report(lost)

    def _run(self) -> None:
        wait_s = self._beat_s
        while not self._ended.wait(wait_s) and not getattr(self.source, "aborted", False):
            wait_s = self._beat()

    def _beat(self) -> float:
        """Renew once; return the seconds until the next time."""
        asked_at = time.monotonic()
        try:
            held = self._renew()
        except LeaseLost:
            # The run has lost its slot, so another one may soon work on these rows.
            self._lose(set(), "slot_lost")
        except Exception:
            # Whatever the reason, the lease is over when it could not be renewed in time.
            retry_s = min(RETRY_S, self._beat_s)
            if time.monotonic() + retry_s >= self._deadline:
                self._lose(set(), "error")
            return retry_s
        else:
            self._deadline = self._deadline_from(asked_at)
            self._lose(held, "taken_by_another_worker")
        return self._beat_s

    def _lose(self, held: set[Any], reason: str) -> None:
        """Give up every open row that is not held any more."""
        with self._lock:
            lost = self._take_lost(self._open - held, reason)
        self._report(lost)

    def _take_lost(self, keys: set[Any], reason: str) -> frozenset[Any]:
        if keys:
            self._open -= keys
            self._lost |= keys
            self._reason = self._reason or reason
            if not self._open:
                self._ended.set()
        return frozenset(keys)

    def _report(self, lost: frozenset[Any]) -> None:
        if not lost or self._on_lost is None:
            return
        try:
            self._on_lost(lost)
        except Exception:
            # The rows that are still held must be renewed all the same.
            log.exception("on_lost of kept rows failed")

    def _deadline_from(self, asked_at: float) -> float:
        return local_deadline_ms(int(asked_at * 1000), self._lease_ms) / 1000


class _Kept:
    """What sync and async blocks see alike."""

    def __init__(self, token: str, renewal: Renewal) -> None:
        self.token = token
        self._renewal = renewal

    @property
    def lost(self) -> frozenset[Any]:
        """The keys of rows that the claim lost: their outcome would not be recorded."""
        return self._renewal.lost

    def holds(self, key: Any) -> bool:
        """Return whether a row was not lost, as far as is known."""
        return key not in self._renewal.lost

    def checkpoint(self) -> None:
        """Raise LeaseLost if rows were lost, Aborted if the run must stop; cheap enough for inner loops."""
        self._renewal.check()


class KeptRows(_Kept):
    """A claim whose lease is renewed until the block ends.

    Rows the block did not finish are free when the lease expires, or immediately with `release`.
    """

    def __init__(self, table: LeasedTable, token: str, renewal: Renewal) -> None:
        super().__init__(token, renewal)
        self._table = table

    def __enter__(self) -> KeptRows:
        self._renewal.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._renewal.end()
        self._renewal.join()

    def finish(self, tx: SyncTx, outcomes: Mapping[Any, Mapping[str, Any]]) -> set[Any]:
        """See `LeasedTable.finish`."""
        done = self._table.finish(tx, self.token, outcomes)
        self._renewal.close(done, set(outcomes))
        return done

    def retry(
        self,
        tx: SyncTx,
        outcomes: Mapping[Any, Mapping[str, Any]],
        exhausted: Mapping[str, Any] | None = None,
        at_least: Duration = 0,
        now: Instant | None = None,
    ) -> Retried:
        """See `LeasedTable.retry`."""
        retried = self._table.retry(tx, self.token, outcomes, exhausted, at_least, now)
        self._renewal.close(retried.delayed | retried.exhausted, set(outcomes))
        return retried

    def release(self, tx: SyncTx) -> set[Any]:
        """See `LeasedTable.release`."""
        freed = self._table.release(tx, self.token)
        self._renewal.close(freed, freed)
        return freed


class AsyncKeptRows(_Kept):
    """Async version of `KeptRows`."""

    def __init__(self, table: AsyncLeasedTable, token: str, renewal: Renewal) -> None:
        super().__init__(token, renewal)
        self._table = table

    async def __aenter__(self) -> AsyncKeptRows:
        self._renewal.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._renewal.end()
        await asyncio.to_thread(self._renewal.join)

    async def finish(self, tx: AsyncTx, outcomes: Mapping[Any, Mapping[str, Any]]) -> set[Any]:
        """See `LeasedTable.finish`."""
        done = await self._table.finish(tx, self.token, outcomes)
        self._renewal.close(done, set(outcomes))
        return done

    async def retry(
        self,
        tx: AsyncTx,
        outcomes: Mapping[Any, Mapping[str, Any]],
        exhausted: Mapping[str, Any] | None = None,
        at_least: Duration = 0,
        now: Instant | None = None,
    ) -> Retried:
        """See `LeasedTable.retry`."""
        retried = await self._table.retry(tx, self.token, outcomes, exhausted, at_least, now)
        self._renewal.close(retried.delayed | retried.exhausted, set(outcomes))
        return retried

    async def release(self, tx: AsyncTx) -> set[Any]:
        """See `LeasedTable.release`."""
        freed = await self._table.release(tx, self.token)
        self._renewal.close(freed, freed)
        return freed
