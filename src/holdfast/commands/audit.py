"""Changes from outside with their audit: what was done and who did it are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.core.records import AuditRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

T = TypeVar("T")


def audited(store: Store, op: Op[T], deeds_of: Callable[[T], Sequence[AuditRecord]]) -> Op[T]:
    """Run an operation and write the deeds that its result amounts to; one without effect leaves no trace."""
    result = yield from op
    deeds = deeds_of(result)
    if deeds:
        yield from store.audit.append(deeds)
    return result
