"""Cursors: where a page ended, opaque to callers, valid only for the list and filter they came from."""

from __future__ import annotations

import base64
import binascii
import hashlib

from holdfast.core.errors import InvalidCursor, InvalidId
from holdfast.core.ids import parse_id

_DIGEST_BYTES = 8


def make_cursor(subject: str, filter: str, last_id: str) -> str:
    """Return the cursor behind the item with this id."""
    raw = _digest(subject, filter) + parse_id(last_id).bytes
    return base64.urlsafe_b64encode(raw).decode()


def read_cursor(subject: str, filter: str, cursor: str) -> str:
    """Return the id at which the previous page ended. Raises: InvalidCursor."""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (AttributeError, UnicodeEncodeError, binascii.Error):
        raise InvalidCursor("the cursor is not one of ours") from None
    digest, id = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if digest != _digest(subject, filter):
        raise InvalidCursor(f"the cursor belongs to another list or filter than these {subject}")
    return _id(id)


def _id(raw: bytes) -> str:
    text = raw.hex()
    try:
        return str(parse_id("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))))
    except InvalidId:
        raise InvalidCursor("the cursor is not one of ours") from None


def _digest(subject: str, filter: str) -> bytes:
    said = f"{subject}\0{' '.join(filter.split())}"
    return hashlib.blake2b(said.encode(), digest_size=_DIGEST_BYTES).digest()
