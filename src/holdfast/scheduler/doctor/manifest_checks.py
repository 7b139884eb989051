"""Checks of the archive: what failed, what is late, and who removes ended chains."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.duration import pluralize
from holdfast.core.manifest import JOBS, Manifest, ManifestTotals
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

LATE_MS = 2 * 86_400_000
"""The archive runs daily; what did not get on for two days needs a look."""

_SHOWN = 20


class ArchiveFacts(msgspec.Struct, frozen=True):
    """What the database says of the archive."""

    totals: Sequence[ManifestTotals]
    overdue: Sequence[Manifest]


def read_archive(store: Store) -> Op[ArchiveFacts]:
    """Read it."""
    totals = yield from store.manifests.totals()
    overdue = yield from store.manifests.overdue(LATE_MS, _SHOWN)
    return ArchiveFacts(totals, overdue)


def check_archive(facts: ArchiveFacts) -> list[Finding]:
    """Check what was read; where nothing is archived there is nothing to say."""
    if not facts.totals:
        return []
    return [_check_removal(facts), _check_manifests(facts)]


def _check_removal(facts: ArchiveFacts) -> Finding:
    if any(each.source == JOBS for each in facts.totals):
        return ok(
            "archive_removes", "the archive removes ended chains, retention leaves them alone"
        )
    return ok("archive_removes", "retention removes ended chains; only tables are archived")


def _check_manifests(facts: ArchiveFacts) -> Finding:
    failed = [each for each in facts.totals if each.errors or each.state == "failed"]
    count = sum(each.manifests for each in facts.totals)
    measured = f"{pluralize(count, 'manifest')}, {sum(each.rows for each in facts.totals)} rows"
    if failed:
        wrong = sum(
            max(each.errors, each.manifests if each.state == "failed" else 0) for each in failed
        )
        return problem(
            "archive",
            f"{measured}; {wrong} with an error",
            "rows of those periods are not safe in the archive, and are not dropped",
            "see the reasons with `holdfast archive list`; the next run tries again",
        )
    if facts.overdue:
        names = ", ".join(each.name for each in facts.overdue[:3])
        return warning(
            "archive",
            f"{measured}; late: {names}",
            "no progress for two days: the archive's cycle isn't running, or isn't finishing",
            "check `holdfast cycles list`, and that a worker or tick has the cycle archiveExport",
        )
    return ok("archive", measured)
