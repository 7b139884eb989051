"""How events become messages: as CloudEvents in binary mode, or raw."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.sealing import Sealer, open_input
from holdfast_streams.relay.sink import OutgoingMessage, Position
from holdfast_streams.stream_event import StreamEvent

RawEvent = StreamEvent[msgspec.Raw]
Encode = Callable[[StreamEvent[Any]], bytes]

ID_HEADERS = ("ce-id", "Holdfast-Id")
"""Where the id of an event is, in CloudEvents and in raw messages."""

_BLOCK = msgspec.json.Decoder(list[RawEvent])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What the HTTP binding of CloudEvents leaves as it is in headers: printable ASCII but for quotes and the percent sign.
_PLAIN = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in '"%')


def decode_block(text: str) -> list[RawEvent]:
    """Read a block of events, whose data stay as they are."""
    return _BLOCK.decode(text)


class EventEncoder:
    """Makes messages of events. `source` says whose events they are."""

    def __init__(
        self,
        source: str,
        sealer: Sealer | None,
        is_raw: bool = False,
        encode: Encode | None = None,
        content_type: str = "application/json",
    ) -> None:
        self._source = header_text(source)
        self._sealer = sealer
        self._is_raw = is_raw
        self._encode = encode
        self._content_type = content_type

    def message(self, event: RawEvent, position: Position) -> OutgoingMessage:
        """Make a message of an event. Raises: what opening sealed data and the user's `encode` raise."""
        data = self._data(event)
        headers = self._raw_headers(event) if self._is_raw else self._cloud_headers(event, data)
        return OutgoingMessage(position, event.id, event.name, event.key, headers, data)

    def _data(self, event: RawEvent) -> bytes:
        data = bytes(event.data)
        if data.startswith((b'{"$sealed":', b'{"$large":')):
            data = open_input(self._sealer, data.decode(), event.id, event.name).encode()
        if data == b"null":
            # A tombstone: what the key means is gone.
            return b""
        if self._encode is None:
            return data
        decoded = msgspec.structs.replace(event, data=msgspec.json.decode(data))
        encoded = self._encode(decoded)
        if not isinstance(encoded, bytes):
            raise TypeError(f"encode= returned {type(encoded).__name__} instead of bytes")
        return encoded

    def _cloud_headers(self, event: RawEvent, data: bytes) -> dict[str, str]:
        headers = {
            "ce-specversion": "1.0",
            "ce-type": event.name,
            "ce-source": self._source,
            "ce-id": event.id,
            "ce-time": time_text(event.published_us),
        }
        if event.key is not None:
            headers["ce-subject"] = header_text(event.key)
        if data:
            headers["content-type"] = self._content_type
        return headers | _event_headers(event) if event.headers else headers

    def _raw_headers(self, event: RawEvent) -> dict[str, str]:
        headers = {"Holdfast-Id": event.id, "Holdfast-Event": event.name}
        if event.key is not None:
            headers["Holdfast-Key"] = header_text(event.key)
        return headers | _event_headers(event) if event.headers else headers


def _event_headers(event: RawEvent) -> dict[str, str]:
    found = {name: header_text(str(value)) for name, value in (event.headers or {}).items()}
    version = found.pop("version", None)
    # The version of the data is Holdfast's own; traceparent is known to everyone by its name.
    return found if version is None else found | {"Holdfast-Version": version}


@lru_cache(maxsize=4_096)
def header_text(text: str) -> str:
    """Return a text for a header, as CloudEvents say: percent-encoded where it is not plain ASCII."""
    return text if text.isascii() and text.isalnum() else quote(text, safe=_PLAIN)


def time_text(instant: Instant) -> str:
    """Return an instant as RFC 3339 writes it."""
    seconds, microseconds = divmod(instant, 1_000_000)
    return f"{_second_text(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=256)
def _second_text(seconds: int) -> str:
    # Events come in the order of their time, so most share their second with the one before.
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
