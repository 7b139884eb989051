"""HF01x: settings that are invalid, and settings that contradict each other."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class ConfigError(HoldfastError):
    """A setting has an invalid value.

    Every setting is read once, at startup, from arguments, the environment or a file. Its type and
    range are checked before any job is claimed.
    """

    code = "HF010"
    fix = "correct the value; `holdfast config show --origin` shows where each one comes from"


class UnusableUrl(ConfigError):
    """The database URL is invalid.

    Holdfast accepts `sqlite:///path` and `postgresql://user@host/database` URLs. Anything else, or
    a URL without a database, is rejected before connecting.
    """

    code = "HF011"
    fix = "set HOLDFAST_URL to sqlite:///holdfast.db or postgresql://user@host/database"


class MissingExtra(ConfigError):
    """A required package is not installed.

    The base installation includes SQLite support and the command line. Drivers, notifiers,
    telemetry and the web dashboard are extras, so you install only what you use.
    """

    code = "HF012"
    fix = 'install the extra the message names, or all of them: pip install "holdfast-jobs[all]"'


class InvalidIdentifier(ConfigError):
    """A schema name is not a plain identifier.

    Identifiers cannot be sent as query parameters. They are always quoted, and only plain ones are
    accepted: lowercase letters, digits and underscores, at most 48 characters, and not starting
    with pg_, which PostgreSQL reserves.
    """

    code = "HF013"
    fix = "use a name of lowercase letters, digits and underscores that starts with a letter"


class ShardPairInvalid(ConfigError):
    """Shard index and shard count are inconsistent.

    Tenants are divided between replicas by hash modulo the count. If only one of the two is set, or
    the index is not below the count, some tenants would have no replica.
    """

    code = "HF014"
    fix = "set both, with 0 <= index < count, or neither"


class UnsafeBind(ConfigError):
    """The API would be reachable without authentication.

    Without tokens or an authenticate hook, everyone who can reach the API has full access, so it
    only listens on loopback addresses.
    """

    code = "HF015"
    fix = "create a token with `holdfast token create`, or listen on 127.0.0.1"


class UnknownVariable(ConfigError):
    """An environment variable with a Holdfast prefix is unknown.

    A misspelled setting would silently keep its default, so unknown names with a Holdfast prefix
    are reported with the closest match.
    """

    code = "HF016"
    fix = "correct the name, or remove the variable"


class HeartbeatTooSlow(ConfigError):
    """The heartbeat is too slow for the lease.

    A worker extends its leases at every heartbeat. If the heartbeat is shorter than a third of the
    shortest lease, two heartbeats can be lost before another worker may take over the job.
    """

    code = "HF017"
    fix = "lower the heartbeat below a third of the shortest lease, or leave it unset"


class ShutdownTooLong(ConfigError):
    """The shutdown timeout is longer than the lease.

    A stopping worker gives its handlers this long to finish. If that is longer than the shortest
    lease, a worker that stalls while stopping loses its leases first.
    """

    code = "HF018"
    fix = "lower the shutdown timeout to at most the shortest lease, or leave it unset"


class ReaperTooSlow(ConfigError):
    """The reaper interval is too long for the lease.

    Jobs of a dead worker become available again within the lease plus one reaper interval. An
    interval as long as the lease would double that time, so it must be shorter.
    """

    code = "HF019"
    fix = "lower the reaper interval below the shortest lease"
