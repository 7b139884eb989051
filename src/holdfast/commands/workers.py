"""Commands on workers: drain one."""

from __future__ import annotations

from holdfast.commands.change import Change, Effect
from holdfast.core.errors import WorkerNotFound
from holdfast.notify.base import Hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def drain_worker(store: Store, id: str) -> Op[Change[None]]:
    """Ask a worker to take nothing new, finish what it runs, and exit. Raises: WorkerNotFound."""
    if not (yield from store.workers.drain(id)):
        raise WorkerNotFound(f"there is no live worker {id[:60]}")
    effect = Effect(f"worker {id}", {"draining": False}, {"draining": True})
    # A worker that checks its leases also checks whether it is to drain.
    return Change(None, [effect], [Hint("lost", worker=id)])
