"""Checks of the hosts of a URL and of replication: who takes writes, who follows, and what a failover would lose."""

from __future__ import annotations

from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.settings import Settings
from holdfast_postgres.replication import HostStatus, Replication, describe_lag

FAR_BEHIND_BYTES = 64 * 1_048_576
FAR_BEHIND_MS = 30_000


def check_replication(replication: Replication, settings: Settings) -> list[Finding]:
    """Check what the hosts reported."""
    return [_check_hosts(replication), _check_standbys(replication, settings)]


def _check_hosts(replication: Replication) -> Finding:
    measured = "; ".join(_describe_host(each) for each in replication.hosts)
    if len(replication.primaries) > 1:
        return problem(
            "hosts",
            measured,
            "several hosts accept writes: jobs run on each, and one side's changes will be discarded",
            "stop all but the rightful primary now, and let a failover manager with a quorum decide",
        )
    silent = [each.host for each in replication.hosts if each.role is None]
    if silent:
        return warning(
            "hosts",
            measured,
            "a host that doesn't respond cannot take over, and may cost two seconds per connection",
            f"start {', '.join(silent)}, or remove it from HOLDFAST_URL",
        )
    apart = _apart(replication)
    if apart:
        return warning(
            "hosts",
            measured,
            "a standby on another timeline does not follow the primary and cannot take over",
            f"rebuild {', '.join(apart)}; with Patroni: patronictl reinit",
        )
    return ok("hosts", measured)


def _apart(replication: Replication) -> list[str]:
    timelines = {each.timeline for each in replication.primaries}
    return [
        each.host
        for each in replication.hosts
        if each.role == "standby" and timelines and each.timeline not in timelines
    ]


def _describe_host(host: HostStatus) -> str:
    if host.role is None:
        return f"{host.host}: no response ({host.error})"
    return f"{host.host}: {host.role}, timeline {host.timeline}"


def _check_standbys(replication: Replication, settings: Settings) -> Finding:
    measured = _describe(replication)
    if replication.is_hidden:
        return warning(
            "replication",
            measured,
            "this role cannot see whether commits reach a standby",
            "grant pg_monitor to the role of HOLDFAST_URL;",
        )
    if replication.synchronous_standby_names:
        return _check_synchronous(replication, settings, measured)
    best = replication.most_current
    if best is None or not _is_far(best.lag_bytes or 0, best.lag_ms or 0):
        return ok("replication", measured)
    return warning(
        "replication",
        measured,
        "a failover now would lose what no standby has received",
        "check the standby's network and disk, or make it synchronous",
    )


def _check_synchronous(replication: Replication, settings: Settings, measured: str) -> Finding:
    if not replication.waits_for_standby:
        return warning(
            "replication",
            measured,
            f"synchronous_commit={replication.synchronous_commit} does not wait for the standby: a failover may lose "
            "acknowledged starts and outcomes",
            "alter system reset synchronous_commit; select pg_reload_conf();",
        )
    if not replication.is_awaited:
        return problem(
            "replication",
            measured,
            "every commit waits for a standby that is not connected: nothing can be started or recorded",
            "bring the standby back; or give up waiting: "
            "alter system reset synchronous_standby_names; select pg_reload_conf();",
        )
    if settings.holdfast.claims == "lazy":
        return warning(
            "replication",
            f"{measured}; HOLDFAST_CLAIMS=lazy",
            "claims do not wait for the standby: a primary that is cut off runs jobs that the next primary runs again",
            "unset HOLDFAST_CLAIMS",
        )
    return ok("replication", measured)


def _describe(replication: Replication) -> str:
    if not replication.standbys:
        standbys = "no standby"
    elif replication.is_hidden:
        standbys = f"{len(replication.standbys)} connected"
    else:
        standbys = ", ".join(
            f"{each.name} {each.sync_state} {describe_lag(each)} behind"
            for each in replication.standbys
        )
    names = replication.synchronous_standby_names
    awaited = f"; synchronous_standby_names={names}" if names else ""
    return f"{standbys}{awaited}; a failover now would lose: {replication.failover_loss}"


def _is_far(lag_bytes: int, lag_ms: int) -> bool:
    return lag_bytes > FAR_BEHIND_BYTES or lag_ms > FAR_BEHIND_MS
