"""HF01x: settings that cannot be used, and settings that contradict each other."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class ConfigError(HoldfastError):
    """A setting has a value that cannot be used.

    Every setting is read once, at start, from arguments, the environment or a file, and is checked
    for its type and range before anything is claimed.
    """

    code = "HF010"
    fix = "correct the value; `holdfast config show --origin` tells where each one comes from"


class UnusableUrl(ConfigError):
    """The database URL cannot be used.

    Holdfast opens `sqlite:///path` and `postgresql://user@host/database` URLs. Anything else, or a
    URL without a database, is refused before a connection is tried.
    """

    code = "HF011"
    fix = "set HOLDFAST_URL to sqlite:///holdfast.db or postgresql://user@host/database"


class MissingExtra(ConfigError):
    """A needed package is not installed.

    The base installation serves SQLite and the command line. Drivers, notifiers, telemetry
    and the web parts come as extras, so that nobody installs what they do not use.
    """

    code = "HF012"
    fix = (
        'install the extra that the message names, or all of them: pip install "holdfast-jobs[all]"'
    )


class InvalidIdentifier(ConfigError):
    """A schema name is not a plain identifier.

    Identifiers cannot be sent as parameters. They are quoted everywhere, and only plain ones are
    accepted in the first place: lower-case letters, digits and underscores, at most 48 of them, and
    not beginning with pg_, which PostgreSQL keeps to itself.
    """

    code = "HF013"
    fix = "use a name of lower-case letters, digits and underscores that begins with a letter"


class ShardPairInvalid(ConfigError):
    """Shard index and shard count do not belong together.

    Tenants are divided between replicas by hash modulo the count. One half of the pair, or an index
    that is not below the count, would leave tenants that nobody serves.
    """

    code = "HF014"
    fix = "set both, with 0 <= index < count, or neither"


class UnknownVariable(ConfigError):
    """A variable with one of our prefixes is unknown.

    A misspelt setting would silently keep its default, so names that begin with a prefix of
    Holdfast but mean nothing are pointed out with the nearest name that does.
    """

    code = "HF016"
    fix = "correct the name, or remove the variable"


class HeartbeatTooSlow(ConfigError):
    """The heartbeat is too slow for the lease.

    A worker extends its leases once per heartbeat. With a heartbeat below a third of the smallest
    lease, two renewals may be lost before another worker can take the job over.
    """

    code = "HF017"
    fix = "lower the heartbeat below a third of the smallest lease, or leave it unset"


class ShutdownTooLong(ConfigError):
    """The shutdown timeout is longer than the lease.

    A stopping worker lets its handlers end for as long as this timeout. One that is longer than the
    smallest lease would promise time that is not covered when the worker stalls on its way out.
    """

    code = "HF018"
    fix = "lower the shutdown timeout to the smallest lease, or leave it unset"


class ReaperTooSlow(ConfigError):
    """The reaper runs too seldom for the lease.

    Jobs of a dead worker are free again within the lease plus one reaper interval. An interval as long
    as the lease would double that time, so it has to be shorter.
    """

    code = "HF019"
    fix = "lower the reaper interval below the smallest lease"
