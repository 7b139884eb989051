"""`app.subscriptions`: which handler gets which event; remove one."""

from __future__ import annotations

import builtins
from datetime import datetime

import msgspec

from holdfast.client.adapters.base import AnyTx, in_transaction
from holdfast.client.client import Resource
from holdfast.client.pagination import PAGE_LENGTH, check_length
from holdfast.client.views import view_of
from holdfast.commands.change import drop_answer
from holdfast.commands.start import remove_subscription
from holdfast.storage.operation import Op


class SubscriptionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An event, the handler it is delivered to, and the job type that delivers it."""

    event: str
    handler: str
    type: str
    created_at: datetime


class SubscriptionCommands(Resource):
    """What can be done to subscriptions in the caller's transaction; with an async one, await the answer."""

    @in_transaction
    def remove(self, tx: AnyTx, event: str, handler: str) -> None:
        """Stop delivering an event to a handler; what was delivered stays. Raises: SubscriptionNotFound.

        A worker that still has the handler subscribes it again when it starts.
        """
        return self._client.write(
            tx, lambda store, _: drop_answer(remove_subscription(store, event, handler))
        )

    def _list(self, limit: int) -> Op[builtins.list[SubscriptionInfo]]:
        records = yield from self._client.store.events.page(check_length(limit))
        return [view_of(SubscriptionInfo, each, type=each.job_type) for each in records]


class Subscriptions(SubscriptionCommands):
    """Reads subscriptions on a connection of ours; writes take the transaction first."""

    def list(self, *, limit: int = PAGE_LENGTH) -> builtins.list[SubscriptionInfo]:
        """Read subscriptions, by event and handler. Raises: InvalidOption."""
        return self._client.read(self._list(limit))


class AsyncSubscriptions(SubscriptionCommands):
    """Async version of `Subscriptions`."""

    async def list(self, *, limit: int = PAGE_LENGTH) -> builtins.list[SubscriptionInfo]:
        """See `Subscriptions.list`."""
        return await self._client.read_async(self._list(limit))
