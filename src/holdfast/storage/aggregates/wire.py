"""How lists and records travel to a statement: as one JSON text each, so that no driver's codecs matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def document(rows: Sequence[Any]) -> str:
    """Encode records or values as one JSON array."""
    return _encoder.encode(rows).decode()


def texts(values: Iterable[str]) -> str:
    """Encode a collection of ids, tokens or names as one JSON array."""
    return _encoder.encode(list(values)).decode()
