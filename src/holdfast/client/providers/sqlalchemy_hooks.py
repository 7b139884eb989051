"""Hooks that wait in a SQLAlchemy session for the commit of the transaction they belong to."""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from holdfast.storage.hooks import Hook

_KEY = "holdfast.hooks"


class SessionHooks:
    """The hooks of one session, kept per transaction: a savepoint's rollback drops only its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[SessionTransaction, dict[Hook, None]] = {}
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    @classmethod
    def of(cls, session: Session) -> SessionHooks:
        """Return the hooks of a session; its events are listened to from the first time on."""
        found = session.info.get(_KEY)
        if not isinstance(found, cls):
            found = session.info[_KEY] = cls(session)
        return found

    def add(self, hook: Hook) -> None:
        """Run a hook when the transaction the session is in now has committed; equal ones run once."""
        self._waiting.setdefault(_innermost(self._session), {})[hook] = None

    def _committed(self, session: Session) -> None:
        """Pass a released savepoint's hooks to the transaction around it, run those of the outermost."""
        transaction = _innermost(session)
        waiting = self._waiting.pop(transaction, {})
        if transaction.nested:
            self._waiting.setdefault(_around(transaction), {}).update(waiting)
            return
        for hook in waiting:
            hook()

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        """Forget what was rolled back; what was committed has been passed on before."""
        self._waiting.pop(transaction, None)


def _innermost(session: Session) -> SessionTransaction:
    transaction = session.get_nested_transaction() or session.get_transaction()
    assert transaction is not None
    return transaction


def _around(savepoint: SessionTransaction) -> SessionTransaction:
    """Return the transaction of the database that a savepoint lies in; flushes add levels of their own."""
    outer = savepoint.parent
    while outer is not None and outer.parent is not None and not outer.nested:
        outer = outer.parent
    assert outer is not None
    return outer
