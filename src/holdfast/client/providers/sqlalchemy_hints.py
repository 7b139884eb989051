"""Hints that wait in a SQLAlchemy session for the commit of the transaction they belong to."""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from holdfast.client.hints import Hints

_KEY = "holdfast.hints"


class SessionHints:
    """The hints of one session, kept per transaction: a savepoint's rollback drops only its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[SessionTransaction, set[Hints]] = {}
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    @classmethod
    def of(cls, session: Session) -> SessionHints:
        """Return the hints of a session; its events are listened to from the first time on."""
        found = session.info.get(_KEY)
        if not isinstance(found, cls):
            found = session.info[_KEY] = cls(session)
        return found

    def add(self, hints: Hints) -> None:
        """Send hints when the transaction the session is in now has committed."""
        self._waiting.setdefault(_innermost(self._session), set()).add(hints)

    def _committed(self, session: Session) -> None:
        """Pass a released savepoint's hints to the transaction around it, send those of the outermost."""
        transaction = _innermost(session)
        waiting = self._waiting.pop(transaction, set())
        if transaction.nested:
            self._waiting.setdefault(_around(transaction), set()).update(waiting)
            return
        for hints in waiting:
            hints.send()

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
