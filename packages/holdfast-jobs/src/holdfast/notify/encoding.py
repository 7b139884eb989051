"""Hints as text: JSON in ASCII, split into payloads that every server accepts, decoded leniently."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.notify.base import ANY, Hint
from holdfast.storage.sql_loader import check_identifier

PAYLOAD_LIMIT = 7_500
"""Bytes; PostgreSQL rejects notifications of 8 000."""
IDS_LIMIT = 50
"""Ids in one hint; more of them become several hints."""
PAYLOADS_LIMIT = 16
"""Payloads of one batch; a larger batch is replaced by wider hints."""


def channel_name(schema: str) -> str:
    """Return the channel that carries the hints of a schema."""
    return f"{check_identifier(schema)}_hint"


def encode(hints: Sequence[Hint]) -> list[str]:
    """Return the payloads that carry these hints; wider hints replace them where there would be too many."""
    payloads = _pack(hints)
    if len(payloads) <= PAYLOADS_LIMIT:
        return payloads
    return _pack(list(dict.fromkeys(widen(hint) for hint in hints)))


def decode(payload: str) -> tuple[Hint, ...]:
    """Return the hints of a payload; what is not a hint this version knows is skipped."""
    try:
        items = json.loads(payload)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(items, list):
        return ()
    return tuple(hint for item in items if (hint := _decode_one(item)) is not None)


def widen(hint: Hint) -> Hint:
    """Return the hint that means this one and everything else of its kind."""
    return Hint(hint.kind, ANY) if hint.kind in ("due", "look") else Hint(hint.kind)


def _decode_one(item: object) -> Hint | None:
    try:
        return msgspec.convert(item, Hint)
    except msgspec.ValidationError:
        return None


def _pack(hints: Sequence[Hint]) -> list[str]:
    payloads: list[str] = []
    parts: list[str] = []
    size = 0
    for part in _encode_each(hints):
        if parts and size + len(part) + 2 > PAYLOAD_LIMIT:
            payloads.append(f"[{','.join(parts)}]")
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        payloads.append(f"[{','.join(parts)}]")
    return payloads


def _encode_each(hints: Sequence[Hint]) -> Iterator[str]:
    for hint in hints:
        for start in range(0, len(hint.ids) or 1, IDS_LIMIT):
            part = _encode_one(
                msgspec.structs.replace(hint, ids=hint.ids[start : start + IDS_LIMIT])
            )
            yield part if len(part) + 2 <= PAYLOAD_LIMIT else _encode_one(widen(hint))


def _encode_one(hint: Hint) -> str:
    # In ASCII a payload passes databases of every encoding, and its length is its size.
    return json.dumps(msgspec.to_builtins(hint), ensure_ascii=True, separators=(",", ":"))
