"""How lists and records travel to and from a statement: as one text each, so that no driver's codecs matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
_lists = msgspec.json.Decoder(list[Any])


def document(rows: Sequence[Any] | Mapping[str, Any]) -> str:
    """Encode records or values as one JSON array, values by id as one JSON object."""
    return _encoder.encode(rows).decode()


def texts(values: Iterable[str]) -> str:
    """Encode a collection of ids, tokens or names as one JSON array."""
    return _encoder.encode(list(values)).decode()


def lists(text: str) -> list[Any]:
    """Read rows that came as one JSON array of arrays."""
    return _lists.decode(text)


def array(values: Sequence[str]) -> str:
    """Write ids or numbers as the text of a PostgreSQL array."""
    return "{" + ",".join(values) + "}"


def items(array: str) -> list[str]:
    """Read the text of a PostgreSQL array of ids."""
    return array[1:-1].split(",")
