"""The doctor's findings for every surface."""

from __future__ import annotations

from holdfast.core.redaction import redact
from holdfast.runtime.doctor.examine import examine
from holdfast.runtime.doctor.finding import Finding
from holdfast.service.access import check
from holdfast.service.desk import Caller, Desk
from holdfast.settings import Settings


class DoctorDesk:
    """What can be asked about the health of the installation; nothing is mended from here."""

    def __init__(self, desk: Desk, settings: Settings) -> None:
        self._desk = desk
        self._settings = settings

    async def findings(self, caller: Caller) -> list[Finding]:
        """Check configuration, fleet and database, the worst first."""
        check(caller.principal, "doctor.read")
        app = self._desk.app
        leases = {each.name: each.lease for each in app.registry if each.lease is not None}
        found = await examine(app.database, self._settings, leases)
        ordered = sorted(found, key=lambda each: _ORDER.index(each.verdict))
        return [_without_secrets(each) for each in ordered]


_ORDER = ("problem", "warning", "ok")


def _without_secrets(finding: Finding) -> Finding:
    return Finding(
        finding.check, finding.verdict, redact(finding.measured), finding.text, finding.fix
    )
