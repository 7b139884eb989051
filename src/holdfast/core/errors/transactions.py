"""HF03x and HF04x: the caller's transactions and connections, the schema and the database."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class TransactionError(HoldfastError):
    """The transaction or connection that was handed over cannot be used."""


class NoTransaction(TransactionError):
    """The connection has no open transaction.

    A job is written in the caller's transaction, so that it exists if and only if the business rows
    beside it do. A connection in autocommit mode would commit it alone.
    """

    code = "HF030"
    fix = "open a transaction first"


class TransactionAborted(TransactionError):
    """The transaction has already failed.

    An earlier statement failed, and the database accepts nothing more until the transaction or its
    savepoint is rolled back.
    """

    code = "HF031"
    fix = "roll back to a savepoint or begin again"
    retryable = True


class ConnectionClosed(TransactionError):
    """The connection is closed.

    The connection that was handed over has been closed by this side or lost by the other; nothing
    was written.
    """

    code = "HF032"
    fix = "open a new connection and repeat the whole transaction"
    retryable = True


class UnsupportedConnection(TransactionError):
    """This kind of connection is not known.

    Holdfast writes through connections of psycopg, asyncpg, SQLAlchemy, Django and sqlite3 and
    through its own transactions, each recognised by its type.
    """

    code = "HF033"
    fix = "pass one of the kinds that the message lists, or use `with app.transaction() as tx`"


class KeyConflict(TransactionError):
    """The same key was started at the same time.

    The caller's transaction runs in REPEATABLE READ or SERIALIZABLE and cannot see the chain that
    another transaction has just started under this key. Repeated, it will.
    """

    code = "HF034"
    fix = "repeat the transaction, or run it in READ COMMITTED"
    retryable = True


class DatabaseError(HoldfastError):
    """The database cannot serve."""


class WrongDatabase(DatabaseError):
    """The database does not contain the schema.

    Either the migrations have not been run yet, or the connection leads to another database than
    the one in which Holdfast's tables are.
    """

    code = "HF040"
    fix = "run `holdfast migrate` for this database, or pass a connection to the right one"


class SchemaTooOld(DatabaseError):
    """The schema is older than this version needs.

    New code expects tables or columns that are added by a migration. Migrations are run before
    workers of the new version are started; workers of the previous version go on working.
    """

    code = "HF041"
    fix = "run `holdfast migrate`"


class SchemaTooNew(DatabaseError):
    """The schema is newer than this version knows.

    A later version of Holdfast has migrated the database and no longer promises to serve code as
    old as this.
    """

    code = "HF042"
    fix = "upgrade holdfast here to the version that migrated the database"


class SchemaChanged(DatabaseError):
    """A migration is not the one that was applied.

    The database remembers a checksum of every migration. This code has another text under the same
    number, so the tables may not be what it expects.
    """

    code = "HF047"
    fix = "use the version of holdfast that migrated the database, or migrate a new one"


class DatabaseUnreachable(DatabaseError):
    """The database does not answer.

    No connection could be made, or one was lost in the middle. Workers keep trying with growing
    pauses; callers get this error at once.
    """

    code = "HF043"
    fix = "check that the server runs and that HOLDFAST_URL is right"
    retryable = True


class DatabaseReadOnly(DatabaseUnreachable):
    """The database answers, but takes no writes.

    The transaction is read-only, or every one of its role or database is, or the server is a
    standby. A SQLite connection may have been opened for reading, or the file may be write-protected.
    """

    code = "HF048"
    fix = "let the transaction write, and connect to the primary"
    retryable = True


class DatabaseBusy(DatabaseError):
    """The database was locked for too long.

    Another transaction held what this one needed for longer than the timeout. On SQLite there is
    one writer at a time for the whole file, so long write transactions delay all others.
    """

    code = "HF044"
    fix = "try again, and keep transactions short"
    retryable = True


class RoleRefused(DatabaseError):
    """The database role may not do this.

    PostgreSQL refused a statement to the role of the connection. Producers, workers, operators and
    readers need different rights, and the documentation prints the grants of each.
    """

    code = "HF046"
    fix = "grant the role what it needs (see Security in the documentation), or connect as another"


class CopiedDatabase(DatabaseError):
    """The database is a copy of another one.

    A database remembers the name it was made under. One that was restored or copied under another
    name is not worked off unasked, so that a copy for testing sends no mail.
    """

    code = "HF045"
    fix = "run `holdfast adopt` if this copy is meant to be worked off"
