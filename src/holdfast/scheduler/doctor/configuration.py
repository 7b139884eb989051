"""Checks of the settings, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.cycle import CycleSpec
from holdfast.core.errors import ConfigError
from holdfast.core.lease import Lease
from holdfast.core.registry import JobType
from holdfast.scheduler.doctor.finding import Finding, ok, problem, warning
from holdfast.settings import (
    Settings,
    check_leases,
    effective_options,
    timings_under,
    unknown_variables,
)

Owners = Sequence[JobType | CycleSpec]


def check_configuration(
    settings: Settings, leases: Mapping[str, Lease], owners: Owners = ()
) -> list[Finding]:
    """Check the settings against each other, and against the job types and cycles of an application."""
    return [
        _names(settings, owners),
        _timing(settings, leases),
        _retention(settings),
        _runners(settings, [each.name for each in owners if isinstance(each, CycleSpec)]),
    ]


def _names(settings: Settings, owners: Owners) -> Finding:
    warnings = unknown_variables(settings)
    unknown = [each.message.split()[0] for each in warnings]
    if not unknown:
        used = [f"{each.name}={each.value} ({each.origin})" for each in effective_options(owners)]
        return ok("variables", "; ".join([f"{len(settings.given)} set, all known", *used]))
    return warning(
        "variables",
        f"unknown: {', '.join(unknown)}",
        "a misspelled name leaves its setting at the default",
        "; ".join(f"{each.message.split()[0]}: {each.help}" for each in warnings),
    )


def _timing(settings: Settings, leases: Mapping[str, Lease]) -> Finding:
    all_ms = {"default": settings.outbox.lease_duration_ms}
    all_ms |= {f"of {name}": lease.duration_ms for name, lease in leases.items()}
    whose, smallest_ms = min(all_ms.items(), key=lambda each: each[1])
    heartbeat, shutdown, reaper = timings_under(settings, smallest_ms)
    measured = (
        f"smallest lease {smallest_ms} ms ({whose}); under it heartbeat {heartbeat.ms} ms, "
        f"shutdown {shutdown.ms} ms, reaper every {reaper.ms} ms"
    )
    try:
        check_leases(settings, leases)
    except ConfigError as error:
        return problem("timing", measured, error.message, error.help)
    return ok("timing", measured)


def _retention(settings: Settings) -> Finding:
    days = settings.holdfast.retention_days
    if days:
        return ok("retention", f"finished chains are kept {days} days")
    return warning(
        "retention",
        "finished chains are kept forever",
        "tables grow without limit, and backups with them",
        "set HOLDFAST_RETENTION_DAYS=30",
    )


_WITHOUT = {
    "outbox": "these workers run no jobs",
    "retention": "unless other workers remove them, finished chains stay and tables grow without limit",
}


def _runners(settings: Settings, cycles: Sequence[str]) -> Finding:
    names = settings.worker.tick_runners
    if names is None:
        return ok("runners", "outbox, every cycle, retention")
    missing = [name for name in (*_WITHOUT, *cycles) if name not in names]
    if not missing:
        return ok("runners", ", ".join(names))
    return warning(
        "runners",
        f"WORKER_TICK_RUNNERS={','.join(names)} leaves out {' and '.join(missing)}",
        "; ".join(_WITHOUT.get(name, f"{name} does not run here") for name in missing),
        f"set WORKER_TICK_RUNNERS={','.join([*names, *missing])}, or unset it",
    )
