"""HF03x and HF04x: the caller's transactions and connections, the schema and the database."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class TransactionError(HoldfastError):
    """The given transaction or connection cannot be used."""


class NoTransaction(TransactionError):
    """The connection has no open transaction.

    A job is written in your transaction, so it exists if and only if your rows do. A connection in
    autocommit mode would commit it separately.
    """

    code = "HF030"
    fix = "open a transaction first"


class TransactionAborted(TransactionError):
    """The transaction has already failed.

    An earlier statement failed, and the database accepts no more statements until the transaction
    or its savepoint is rolled back.
    """

    code = "HF031"
    fix = "roll back to a savepoint, or start a new transaction"
    retryable = True


class ConnectionClosed(TransactionError):
    """The connection is closed.

    The connection was closed or lost; nothing was written.
    """

    code = "HF032"
    fix = "open a new connection and repeat the whole transaction"
    retryable = True


class UnsupportedConnection(TransactionError):
    """Unsupported connection type.

    Holdfast writes through connections of psycopg, asyncpg, SQLAlchemy, Django and sqlite3, and
    through its own transactions.
    """

    code = "HF033"
    fix = "pass one of the types the message lists, or use `with app.transaction() as tx`"


class KeyConflict(TransactionError):
    """Another transaction started the same key at the same time.

    Your transaction runs in REPEATABLE READ or SERIALIZABLE and cannot see the chain that another
    transaction just started with this key. If you retry, it will.
    """

    code = "HF034"
    fix = "retry the transaction, or run it in READ COMMITTED"
    retryable = True


class DatabaseError(HoldfastError):
    """The database cannot be used."""


class WrongDatabase(DatabaseError):
    """The database does not contain the schema.

    Either the migrations have not been run yet, or this connection points to a different database.
    """

    code = "HF040"
    fix = "run `holdfast migrate` for this database, or connect to the right one"


class SchemaTooOld(DatabaseError):
    """The schema is older than this version needs.

    This version expects tables or columns that a migration adds. Run migrations before you start
    workers of the new version; workers of the previous version keep running.
    """

    code = "HF041"
    fix = "run `holdfast migrate`"


class SchemaTooNew(DatabaseError):
    """The schema is newer than this version supports.

    A newer version of Holdfast migrated the database and no longer supports this version.
    """

    code = "HF042"
    fix = "upgrade holdfast here to the version that migrated the database"


class SchemaChanged(DatabaseError):
    """A migration differs from the one that was applied.

    The database stores a checksum of every migration. This code has a different migration under the
    same number, so the tables may not be what it expects.
    """

    code = "HF047"
    fix = "use the version of holdfast that migrated the database, or migrate a new one"


class DatabaseUnreachable(DatabaseError):
    """The database is unreachable.

    No connection could be made, or it was lost. Workers retry with backoff; callers get this error
    immediately.
    """

    code = "HF043"
    fix = "check that the server is running and that HOLDFAST_URL is right"
    retryable = True


class DatabaseReadOnly(DatabaseUnreachable):
    """The database is read-only.

    The transaction, role or database is read-only, or the server is a standby. A SQLite connection
    may have been opened read-only, or the file may be write-protected.
    """

    code = "HF048"
    fix = "use a read-write transaction, and connect to the primary"
    retryable = True


class DatabaseBusy(DatabaseError):
    """The database was locked for too long.

    Another transaction held a lock for longer than the timeout. SQLite allows one writer per file,
    so long write transactions delay all others.
    """

    code = "HF044"
    fix = "retry, and keep transactions short"
    retryable = True


class RoleRefused(DatabaseError):
    """The database role lacks a privilege.

    PostgreSQL rejected a statement of the connection's role. Producers, workers, operators and
    readers need different privileges; the documentation lists the grants for each.
    """

    code = "HF046"
    fix = "grant the role what it needs (see Security in the documentation), or use another role"


class CopiedDatabase(DatabaseError):
    """The database is a copy of another one.

    A database stores the name it was created under. Jobs in a copy under another name do not run,
    so a test copy sends no mail.
    """

    code = "HF045"
    fix = "run `holdfast adopt` to allow jobs in this copy to run"
