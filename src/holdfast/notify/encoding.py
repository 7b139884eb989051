"""Hints as text: JSON in ASCII, cut into payloads that every server accepts, read with tolerance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.notify.base import ANY, Hint
from holdfast.storage.sql_loader import check_identifier

PAYLOAD_LIMIT = 7_500
"""Bytes; PostgreSQL refuses notifications of 8 000."""
IDS_LIMIT = 50
"""Ids in one hint; more of them become several hints."""
PAYLOADS_LIMIT = 16
"""Payloads of one batch; a larger batch is replaced by wider hints."""


def channel_name(schema: str) -> str:
    """The channel on which the workers of a schema hear each other."""
    return f"{check_identifier(schema)}_hint"


def encode(hints: Sequence[Hint]) -> list[str]:
    """Return the payloads that carry these hints, wider ones where they would be too many."""
    payloads = _packed(hints)
    if len(payloads) <= PAYLOADS_LIMIT:
        return payloads
    return _packed(list(dict.fromkeys(widened(hint) for hint in hints)))


def decode(payload: str) -> list[Hint]:
    """Return the hints of a payload; what a newer or a foreign sender put there is left out."""
    try:
        items = json.loads(payload)
    except (ValueError, RecursionError):
        return []
    if not isinstance(items, list):
        return []
    return [hint for item in items if (hint := _read(item)) is not None]


def widened(hint: Hint) -> Hint:
    """Return the hint that means this one and everything else of its kind."""
    return Hint(hint.kind, ANY) if hint.kind in ("due", "look") else Hint(hint.kind)


def _read(item: object) -> Hint | None:
    try:
        return msgspec.convert(item, Hint)
    except msgspec.ValidationError:
        return None


def _packed(hints: Sequence[Hint]) -> list[str]:
    payloads: list[str] = []
    parts: list[str] = []
    size = 0
    for part in _parts(hints):
        if parts and size + len(part) + 2 > PAYLOAD_LIMIT:
            payloads.append(f"[{','.join(parts)}]")
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        payloads.append(f"[{','.join(parts)}]")
    return payloads


def _parts(hints: Sequence[Hint]) -> Iterator[str]:
    for hint in hints:
        for start in range(0, len(hint.ids) or 1, IDS_LIMIT):
            part = _text(msgspec.structs.replace(hint, ids=hint.ids[start : start + IDS_LIMIT]))
            yield part if len(part) + 2 <= PAYLOAD_LIMIT else _text(widened(hint))


def _text(hint: Hint) -> str:
    # In ASCII a payload passes databases of every encoding, and its length is its size.
    return json.dumps(msgspec.to_builtins(hint), ensure_ascii=True, separators=(",", ":"))
