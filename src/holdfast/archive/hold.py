"""A manifest that this process works on: held under a token that is renewed in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.core.manifest import Manifest
from holdfast.core.records import Instant
from holdfast.storage.database import Database

LEASE_MS = 60_000

Now = Callable[[], Instant | None]


class Hold:
    """One manifest and the token under which it is held."""

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
def renewed(database: Database, hold: Hold, lease_ms: int, now: Now) -> Iterator[Hold]:
    """Renew a hold until the block ends."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(lease_ms / 3_000):
            # A database that is busy or away may be back before the lease has expired.
            with suppress(HoldfastError):
                op = database.store.archiving.renew(hold.manifest.id, hold.token, lease_ms, now())
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
