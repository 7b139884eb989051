"""An event of the log, as a consumer gets it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.errors import HoldfastError, words_of
from holdfast.core.instants import Instant, to_datetime
from holdfast.core.redaction import clean_error
from holdfast.core.sealing import Sealer, open_input

T = TypeVar("T")


class StreamEvent(msgspec.Struct, Generic[T], array_like=True, frozen=True, gc=False):
    """A published event: its name, its data, and its place in its line. Its fields are in the order of a block.

    It is made of JSON and never changes, so it is part of no cycle, and a block of thousands causes no collections.
    """

    place: int
    name: str
    key: str | None
    data: T
    headers: dict[str, Any] | None
    id: str
    published_us: Instant

    @property
    def at(self) -> datetime:
        """When it was published."""
        return to_datetime(self.published_us)


class UnreadableEvent(msgspec.Struct, frozen=True):
    """An event whose data is not what the consumer declares, or cannot be opened here."""

    place: int
    name: str
    key: str | None
    id: str
    error: str


_raw_block = msgspec.json.Decoder(list[StreamEvent[msgspec.Raw]])


def has_large(text: str) -> bool:
    """Whether data of a block may be in files, which are read in a thread."""
    return '"$large":' in text


def is_away(error: Exception) -> bool:
    """Whether an event cannot be read now, which is not the event's fault."""
    return isinstance(error, HoldfastError) and error.retryable


class EventDecoder:
    """Reads blocks of events whose data has one type. Data that is sealed is opened."""

    def __init__(self, data_type: Any, sealer: Sealer | None) -> None:
        self._block = msgspec.json.Decoder(list[StreamEvent[data_type]])
        self._data = msgspec.json.Decoder(data_type)
        self._sealer = sealer

    def decode(self, text: str) -> Sequence[StreamEvent[Any] | UnreadableEvent]:
        """Return the events of a block, those that cannot be read as such.

        Raises: HoldfastError while what they name in files is out of reach.
        """
        if self._sealer is None and '{"$sealed":' not in text and '{"$large":' not in text:
            # What it is is found out event by event; the code of a type may raise anything.
            with suppress(Exception):
                return self._block.decode(text)
        return [self._decode_one(each) for each in _raw_block.decode(text)]

    def _decode_one(self, raw: StreamEvent[msgspec.Raw]) -> StreamEvent[Any] | UnreadableEvent:
        try:
            text = open_input(self._sealer, bytes(raw.data).decode(), raw.id, raw.name)
            data = self._data.decode(text)
        except Exception as error:
            if is_away(error):
                raise
            words = clean_error(type(error).__name__, words_of(error))
            return UnreadableEvent(raw.place, raw.name, raw.key, raw.id, words)
        return StreamEvent(
            raw.place, raw.name, raw.key, data, raw.headers, raw.id, raw.published_us
        )
