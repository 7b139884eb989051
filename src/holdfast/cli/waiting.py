"""Waiting for a chain at a terminal: woken by hints, polling in any case."""

from __future__ import annotations

from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.cli.database import read
from holdfast.core.duration import milliseconds
from holdfast.core.errors import (
    ChainCancelled,
    ChainDeleted,
    ChainFailed,
    ChainNotFound,
    WaitTimeout,
)
from holdfast.core.model import TERMINAL

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.core.model import ChainRecord
    from holdfast.notify.port import Hint

_POLL_S = 1.0


def wait_for_chain(app: Holdfast, id: str, timeout: str) -> ChainRecord:
    """Return a chain that has completed.

    Raises: ChainNotFound, ChainFailed, ChainCancelled, ChainDeleted, WaitTimeout.
    """
    deadline = monotonic() + milliseconds(timeout) / 1000
    woken = Event()

    def on_hint(hint: Hint) -> None:
        if hint.kind in ("ended", "look"):
            woken.set()

    chain = _read(app, id)
    if chain is None:
        raise ChainNotFound(f"there is no chain {id}")
    listener = app.notifier.listen(on_hint)
    try:
        while chain.state not in TERMINAL:
            left = deadline - monotonic()
            if left <= 0:
                raise WaitTimeout(f"chain {id} is still {chain.state} after {timeout}")
            woken.wait(min(_POLL_S, left))
            woken.clear()
            chain = _read(app, id)
            if chain is None:
                raise ChainDeleted(f"chain {id} was deleted")
    finally:
        listener.close()
    return _completed(chain)


def _read(app: Holdfast, id: str) -> ChainRecord | None:
    found = read(app, app.database.store.chains.get([id]))
    return found[0] if found else None


def _completed(chain: ChainRecord) -> ChainRecord:
    if chain.state == "failed":
        raise ChainFailed(f"chain {chain.id} failed: {(chain.error or '').partition(chr(10))[0]}")
    if chain.state == "cancelled":
        raise ChainCancelled(f"chain {chain.id} was cancelled")
    return chain
