"""Which hints follow a change: whom it concerns among workers and those who wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.notify.port import Hint

if TYPE_CHECKING:
    from holdfast.core.model import JobRef
    from holdfast.ops.end import EndReport


def of_moved(jobs: Iterable[JobRef]) -> list[Hint]:
    """Jobs that came back into play may be due."""
    return [Hint("due", type) for type in sorted({each.type for each in jobs})]


def of_ended(report: EndReport) -> list[Hint]:
    """Workers lost what they held, chains ended, and whatever waited for them may be due."""
    lost: dict[str, list[str]] = defaultdict(list)
    for each in report.ended:
        if each.worker is not None:
            lost[each.worker].append(each.id)
    hints = [Hint("lost", worker=worker, ids=tuple(ids)) for worker, ids in sorted(lost.items())]
    chains = {each.chain_id for each in (*report.ended, *report.fan_in.failed)}
    if chains:
        hints.append(Hint("ended", ids=tuple(sorted(chains))))
    return [*hints, *of_moved(report.fan_in.opened)]
