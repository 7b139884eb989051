"""One poll of the partitions of a type, as the tests of its cost take it on either store."""

from typing import Any

from holdfast.core.partitions import LimitedClaim, PartitionRule, SignalMark
from holdfast.core.records import LeaseClass
from holdfast.storage.id_generator import new_id

TYPE = "mail"
ALLOWED = 3
AT_START = SignalMark(5)


def poll_partitions(
    limit: int, allowed: int = ALLOWED, mark: SignalMark = AT_START, **fields: Any
) -> LimitedClaim:
    """A claim of so many jobs at most, by default over twice as many signals and partitions, behind what is known."""
    return LimitedClaim(
        "worker",
        TYPE,
        limit,
        LeaseClass(new_id(), 600_000, 25, 1_000, 5_000),
        PartitionRule(TYPE, allowed),
        marks=(mark,),
        **{"window": 2 * limit, "partitions": 2 * limit} | fields,
    )
