"""Which step a call is: its name, and the caller's key or how often the name was used before."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from holdfast.core.codec import to_builtins
from holdfast.core.errors import StepConflict
from holdfast.core.steps import StepId

_encode = msgspec.json.Encoder(enc_hook=to_builtins, order="deterministic").encode


class StepNames:
    """Tells the steps of one attempt apart. The order of their calls is free, as long as keys say which is which."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], int] = {}
        self._under_way: set[tuple[str, str]] = set()

    def enter(self, name: str, key: str = "", *, is_repeatable: bool = False) -> StepId:
        """Return the identity of a call that begins.

        With a key it is the same whenever the key is, unless it `is_repeatable`, as a wait for one signal is.
        Raises: StepConflict.
        """
        named = (name, key)
        if named in self._under_way:
            raise StepConflict(f"two steps named {StepId(name, key)} run at the same time")
        self._under_way.add(named)
        if key and not is_repeatable:
            return StepId(name, key)
        self._uses[named] = nth = self._uses.get(named, 0) + 1
        return StepId(name, key, nth)

    def leave(self, id: StepId) -> None:
        """Note that a call has ended."""
        self._under_way.discard((id.name, id.key))


def hash_arguments(arguments: tuple[Any, ...]) -> int | None:
    """Return a number that tells the arguments of a recorded step from others; None where they have no JSON form."""
    if not arguments:
        return 0
    try:
        raw = _encode(arguments)
    except (TypeError, ValueError, RecursionError):
        return None
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), signed=True)
