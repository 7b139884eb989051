"""The last jobs of chains: where each chain stands, and whether there is such a chain at all."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.errors import ChainNotFound, WrongState
from holdfast.core.records import TERMINAL, Tail
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def tails_of(store: Store, chain_ids: Iterable[str]) -> Op[list[Tail]]:
    """Read the last job of each chain. Raises: ChainNotFound when one of them does not exist."""
    wanted = sorted(set(chain_ids))
    tails = yield from store.chains.tails(wanted)
    missing = set(wanted) - {tail.chain_id for tail in tails}
    if missing:
        raise ChainNotFound(f"there is no chain {min(missing)}")
    return tails


def tail_of(store: Store, chain_id: str) -> Op[Tail]:
    """Read the last job of a chain. Raises: ChainNotFound."""
    (tail,) = yield from tails_of(store, [chain_id])
    return tail


def live_tail(store: Store, chain_id: str) -> Op[Tail]:
    """Read the live job of a chain. Raises: ChainNotFound, WrongState when it has ended."""
    tail = yield from tail_of(store, chain_id)
    if tail.state in TERMINAL:
        raise WrongState(f"chain {chain_id} has ended: it is {tail.state}")
    return tail
