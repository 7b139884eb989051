"""The bucket of an id, as tests look at it."""

from uuid import UUID

from holdfast.core.ids import BUCKETS


def bucket_of(id: str) -> int:
    """Return the bucket of an id, 0 to 16,383: what is before its last 34 bits."""
    return UUID(id).int >> 34 & (BUCKETS - 1)
