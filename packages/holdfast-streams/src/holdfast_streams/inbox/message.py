"""Messages as handlers get them, and webhooks' requests as verifiers get them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.instants import Instant, to_datetime
from holdfast_streams.errors import MessageUnreadable

T = TypeVar("T")

MAX_ID = 500
"""How many characters a message's id may have."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Message(msgspec.Struct, Generic[T], frozen=True):
    """A message that was received: its data, its id at the sender, and what came with it.

    Names of headers are in lower case. The subject is that of JetStream, the stream of Redis, None for a webhook.
    """

    inbox: str
    id: str
    data: T
    body: bytes
    headers: Mapping[str, str]
    subject: str | None
    received_us: Instant

    @property
    def at(self) -> datetime:
        """When it was received, by the database's clock."""
        return to_datetime(self.received_us)


class RawMessage(msgspec.Struct, frozen=True):
    """A message before its data was read."""

    inbox: str
    id: str
    body: bytes
    headers: Mapping[str, str]
    subject: str | None = None
    received_us: Instant | None = None


class WebhookRequest:
    """A POST to an inbox, for `verify` and `id`: headers by their names in lower case, and the body as it was sent."""

    def __init__(self, headers: Mapping[str, str], body: bytes, received_us: Instant) -> None:
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body
        self.received_us = received_us

    def header(self, name: str) -> str:
        """Return a header, empty if there is none."""
        return self.headers.get(name.lower(), "")

    @cached_property
    def json(self) -> Any:
        """The body as JSON. Raises: MessageUnreadable."""
        return decode_json(self.body, Any)


def decode_json(body: bytes, kind: Any) -> Any:
    """Read JSON as a type. Raises: MessageUnreadable."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageUnreadable(f"the body cannot be read: {str(error)[:200]}") from None


def check_id(found: object) -> str:
    """Return a message's id as it is stored. Raises: MessageUnreadable."""
    text = str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
    if not 1 <= len(text) <= MAX_ID or _UNSTORABLE.search(text):
        raise MessageUnreadable(
            f"{repr(found)[:60]} is not the id of a message", help="an id has 1 to 500 characters"
        )
    return text
