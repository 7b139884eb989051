"""One look at the gates of a type, as the tests of its cost take it on either store."""

from typing import Any

from holdfast.core.gates import GateRule, LimitedClaim, WakeupMark
from holdfast.core.records import LeaseClass
from holdfast.storage.id_generator import new_id

TYPE = "mail"
ALLOWED = 3
AT_START = WakeupMark(5)


def look_at_gates(
    limit: int, allowed: int = ALLOWED, mark: WakeupMark = AT_START, **fields: Any
) -> LimitedClaim:
    """A claim of so many jobs at most, by default over twice as many wakeups and gates, behind what is known."""
    return LimitedClaim(
        "worker",
        TYPE,
        limit,
        LeaseClass(new_id(), 600_000, 25, 1_000, 5_000),
        GateRule(TYPE, allowed),
        marks=(mark,),
        **{"window": 2 * limit, "gates": 2 * limit} | fields,
    )
