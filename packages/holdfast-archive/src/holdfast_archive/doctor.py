"""Checks of the archive: what failed, what is late, and who removes ended chains."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.duration import pluralize
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_archive.manifest import JOBS, Manifest, ManifestTotals
from holdfast_archive.manifest_store import MANIFESTS

LATE_MS = 2 * 86_400_000
"""The archive runs daily; what did not get on for two days needs a look."""

_SHOWN = 20


def check_archive(store: Store) -> Op[list[Finding]]:
    """Check the manifests; where nothing is archived there is nothing to say."""
    totals = yield from MANIFESTS.totals()
    if not totals:
        return []
    overdue = yield from MANIFESTS.overdue(LATE_MS, _SHOWN)
    return [_check_removal(totals), _check_manifests(totals, overdue)]


CHECKS = (check_archive,)


def _check_removal(totals: Sequence[ManifestTotals]) -> Finding:
    if any(each.source == JOBS for each in totals):
        return ok(
            "archive_removes", "the archive removes ended chains, retention leaves them alone"
        )
    return ok("archive_removes", "retention removes ended chains; only tables are archived")


def _check_manifests(totals: Sequence[ManifestTotals], overdue: Sequence[Manifest]) -> Finding:
    failed = [each for each in totals if each.errors or each.state == "failed"]
    count = sum(each.manifests for each in totals)
    measured = f"{pluralize(count, 'manifest')}, {sum(each.rows for each in totals)} rows"
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
    if overdue:
        names = ", ".join(each.name for each in overdue[:3])
        return warning(
            "archive",
            f"{measured}; late: {names}",
            "no progress for two days: the archive's cycle isn't running, or isn't finishing",
            "check `holdfast cycles list`, and that a worker or tick has the cycle archiveExport",
        )
    return ok("archive", measured)
