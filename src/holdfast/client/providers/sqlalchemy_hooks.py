"""Hooks that wait in a SQLAlchemy session for the commit of the transaction they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from holdfast.client.providers.port import reviewing
from holdfast.storage.after_commit import Hooks

_KEY = "holdfast.hooks"

Review: TypeAlias = Callable[[Hooks], None]
"""Asks the database which hooks belong to something that was not undone."""


class SessionHooks:
    """The hooks of one session, kept per transaction: a savepoint's rollback drops only its own.

    SQLAlchemy tells of the savepoints that it made itself; the review after the commit finds out about all others.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[SessionTransaction, Hooks] = {}
        self._review: Review | None = None
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    @classmethod
    def of(cls, session: Session, review: Review) -> Hooks:
        """Return the hooks of the transaction that a session is in; its events are listened to from then on."""
        found = session.info.get(_KEY)
        if not isinstance(found, cls):
            found = session.info[_KEY] = cls(session)
        found._review = review
        return found._waiting.setdefault(_innermost(session), Hooks())

    def _committed(self, session: Session) -> None:
        """Pass a released savepoint's hooks to the transaction around it, run those of the outermost."""
        transaction = _innermost(session)
        hooks = self._waiting.pop(transaction, None)
        if hooks is None:
            return
        if transaction.nested:
            self._waiting.setdefault(_around(transaction), Hooks()).update(hooks)
            return
        assert self._review is not None
        with reviewing(hooks):
            self._review(hooks)
        hooks.run()

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
