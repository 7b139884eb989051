"""Which job type is meant, and whether an input fits it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.core.codec import SIZE_LIMIT, TypeCodec
from holdfast.core.errors import InvalidOption
from holdfast.core.registry import JobType, Registry, Target, check_name

_ANYTHING = TypeCodec(Any)


class Entry(msgspec.Struct, frozen=True):
    """A job type as a start needs it: its name, and what writes its input."""

    name: str
    codec: TypeCodec
    waits_for: tuple[str, ...] | None = None


class Targets:
    """Finds what is started or published in the registry, within the limit for payloads."""

    def __init__(self, registry: Registry, open_types: bool, payload_limit: int) -> None:
        self._registry = registry
        self._open_types = open_types
        self._limit = payload_limit

    def entry(self, target: Target) -> Entry:
        """Return the type to be started. Raises: UnknownJobType, InvalidName, InvalidOption."""
        entry = self.successor(target)
        known = self._registry.find(target)
        if known is not None and not known.entry:
            raise InvalidOption(
                f"job type {known.name} is declared with entry=False, so no chain begins with it",
                help="start the chain with another type that continues with this one",
            )
        return entry

    def successor(self, target: Target) -> Entry:
        """Return the type a chain goes on with, whether or not one may begin with it. Raises: see `entry`."""
        if self._open_types and isinstance(target, str) and target not in self._registry:
            return Entry(check_name(target), _ANYTHING)
        found = self._registry.get(target)
        return Entry(found.name, found.input, found.waits_for)

    def encode(self, entry: Entry, input: Any) -> str:
        """Return an input as text. Raises: InputInvalid, PayloadTooLarge, PayloadNotEncodable."""
        return entry.codec.encode(input, self._limit)

    def encode_event(self, event: str, input: Any) -> str:
        """Return an event's input as text that fits everybody known here who declares its type.

        Raises: InvalidName, InputInvalid, PayloadTooLarge, PayloadNotEncodable.
        """
        declared = self._registry.find(check_name(event))
        known = [declared] if declared is not None else []
        codecs = [each.input for each in (*known, *self._registry.of_event(event))]
        texts = [each.encode(input, self._limit) for each in codecs or [_ANYTHING]]
        return texts[0]


def open_targets(types: Iterable[JobType]) -> Targets:
    """Return what knows these types and takes any other name, for want of an application that could say."""
    registry = Registry()
    for each in types:
        registry.add(each)
    return Targets(registry, open_types=True, payload_limit=SIZE_LIMIT)
