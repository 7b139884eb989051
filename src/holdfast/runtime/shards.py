"""Shards: tenants divided between replicas by a hash that is the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from holdfast.core.errors import ShardPairInvalid


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of the tenants."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ShardPairInvalid(f"there is no shard {self.index} of {self.count}")

    def owns(self, tenant: object) -> bool:
        """Say whether a tenant, named by the text of its id, belongs to this shard."""
        digest = blake2b(str(tenant).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.index

    def name_of(self, cycle: str) -> str:
        """Return the name under which this shard of a cycle locks, runs and is recorded."""
        return f"{cycle}:{self.index}/{self.count}"


WHOLE = Shard(0, 1)
"""All tenants."""
