"""The hosts and standbys of a PostgreSQL server, and what a failover at this moment would lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.core.duration import format_span

_SYNCHRONOUS = ("sync", "quorum")
_UNAWAITED = ("off", "local")


class HostStatus(msgspec.Struct, frozen=True):
    """A host of the URL: its role and its timeline, or why it gave no answer."""

    host: str
    role: Literal["primary", "standby"] | None = None
    timeline: int | None = None
    error: str | None = None


class StandbyStatus(msgspec.Struct, frozen=True):
    """A standby as the primary sees it; a role that may not look sees only that it is there."""

    name: str | None
    state: str | None
    sync_state: str | None
    lag_bytes: int | None
    lag_ms: int | None

    @property
    def is_synchronous(self) -> bool:
        """Whether commits wait for this one, alone or with others."""
        return self.sync_state in _SYNCHRONOUS


class Replication(msgspec.Struct, frozen=True):
    """Hosts, standbys, and what commits wait for."""

    hosts: list[HostStatus]
    standbys: list[StandbyStatus] = []
    synchronous_standby_names: str = ""
    synchronous_commit: str = ""
    failover_loss: str = ""

    @property
    def primaries(self) -> list[HostStatus]:
        """The hosts that take writes."""
        return [each for each in self.hosts if each.role == "primary"]

    @property
    def is_hidden(self) -> bool:
        """Whether the role sees no details of the standbys."""
        return any(each.state is None for each in self.standbys)

    @property
    def is_awaited(self) -> bool:
        """Whether commits wait for a standby that is there."""
        return self.waits_for_standby and any(each.is_synchronous for each in self.standbys)

    @property
    def waits_for_standby(self) -> bool:
        """Whether commits wait for a standby, there or not."""
        return bool(self.synchronous_standby_names) and self.synchronous_commit not in _UNAWAITED

    @property
    def most_current(self) -> StandbyStatus | None:
        """The standby with the least lag."""
        known = [each for each in self.standbys if each.lag_bytes is not None]
        return min(known, key=lambda each: each.lag_bytes or 0, default=None)


def with_failover_loss(replication: Replication) -> Replication:
    """Return the same with a sentence on what a failover now would lose."""
    return msgspec.structs.replace(replication, failover_loss=_loss(replication))


def _loss(replication: Replication) -> str:
    if not replication.primaries:
        return "No host accepts writes right now; nothing is acknowledged until one is promoted."
    if replication.is_hidden:
        return "Unknown: this role cannot see the state of standbys."
    if replication.is_awaited:
        names = [each.name or "?" for each in replication.standbys if each.is_synchronous]
        return f"Nothing acknowledged: commits wait for {_join_names(names)}."
    if replication.waits_for_standby:
        return "Nothing, but nothing is acknowledged either: commits wait for a standby that is not connected."
    best = replication.most_current
    if best is None:
        return "Everything since the last backup: no standby is connected."
    return (
        f"Acknowledged starts and outcomes that no standby has yet; {best.name or 'the closest'} is "
        f"{describe_lag(best)} behind."
    )


def describe_lag(standby: StandbyStatus) -> str:
    """Say how far a standby is behind."""
    lag = f"{standby.lag_bytes or 0:,} bytes"
    return f"{lag} ({format_span(standby.lag_ms * 1000)})" if standby.lag_ms else lag


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
