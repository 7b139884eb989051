"""What parent and child say to each other: one length-framed JSON message at a time, no pickle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.core.records import BlockerRecord

LENGTH_BYTES = 4
LARGEST = 64 * 1024 * 1024


class Ask(msgspec.Struct, tag="ask", tag_field="message_kind"):
    """Run the handler for this job."""

    id: str
    chain_id: str
    chain_index: int
    type: str
    input: str
    attempt: int
    fence: int
    priority: int
    created_at: int
    key: str | None
    trace: str | None
    worker: str
    blockers: Sequence[BlockerRecord]


class Ready(msgspec.Struct, tag="ready", tag_field="message_kind"):
    """The process has imported its handler and waits for jobs."""


class Progress(msgspec.Struct, tag="progress", tag_field="message_kind"):
    """How far the handler is; any number of these come before its end."""

    fraction: float
    note: str


class Answer(msgspec.Struct, tag="answer", tag_field="message_kind"):
    """What the handler returned: a value as JSON text, or one of the outcomes."""

    kind: Literal["value", "continue", "snooze", "cancel"]
    output: str = "null"
    type: str = ""
    delay_ms: int | None = None
    reason: str = ""
    at: int | None = None
    priority: int | None = None
    blockers: list[str] = []
    options: dict[str, Any] = {}


class Failure(msgspec.Struct, tag="failure", tag_field="message_kind"):
    """What the handler raised."""

    kind: str
    message: str
    stack: str
    retryable: bool
    busy_ms: int | None = None
    busy_until: int | None = None


Message = Ask | Ready | Progress | Answer | Failure

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Message)


class ChildError(Exception):
    """What a handler raised in its process; shown under its own name."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.kind = failure.kind
        self.stack = failure.stack
        self.retryable = failure.retryable


def framed(message: Message) -> bytes:
    """Put a message behind its length."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def parsed(body: bytes) -> Message:
    """Read a message. Raises: msgspec.DecodeError."""
    message: Message = _decoder.decode(body)
    return message


def length_of(head: bytes) -> int:
    """Read a length. Raises: ValueError for one that no message of ours has."""
    length = int.from_bytes(head, "big")
    if length > LARGEST:
        raise ValueError(f"a message of {length} bytes")
    return length
