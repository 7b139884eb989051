"""What producers call: starting chains and publishing events in whatever transaction they hold."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Unpack, overload

from holdfast.client.adapters.base import AsyncTx, SyncTx
from holdfast.client.client import Client, Command, Conditions
from holdfast.client.enqueue import (
    PublishOptions,
    Start,
    Starter,
    Targets,
    publish_command,
    start_command,
)
from holdfast.client.options import SharedOptions, StartOptions
from holdfast.client.views import Chain
from holdfast.commands.change import Change
from holdfast.core.registry import Target
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class Producer:
    """Writes jobs; with a sync connection the answer comes at once, with an async one it is awaited."""

    def _connect(self, client: Client, targets: Targets) -> None:
        """Write through this client from now on."""
        self._client = client
        self._targets = targets
        self._starter = Starter(targets)

    @overload
    def start(
        self, tx: SyncTx, target: Target, input: Any = None, **options: Unpack[StartOptions]
    ) -> Chain: ...
    @overload
    def start(
        self, tx: AsyncTx, target: Target, input: Any = None, **options: Unpack[StartOptions]
    ) -> Coroutine[Any, Any, Chain]: ...
    def start(
        self, tx: Any, target: Target, input: Any = None, **options: Unpack[StartOptions]
    ) -> Chain | Coroutine[Any, Any, Chain]:
        """Start a chain in the caller's transaction; on an async connection, await it.

        Raises: UnknownJobType, InputInvalid, PayloadError, InvalidOption, ChainNotFound for a
        blocker, and the errors of connections and schema; nothing is written then.
        """
        batch = self._starter.one(target, input, options)
        return self._client.write(tx, _only(start_command(batch)))

    @overload
    def start_many(
        self,
        tx: SyncTx,
        target: Target,
        inputs: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> list[Chain]: ...
    @overload
    def start_many(
        self,
        tx: AsyncTx,
        target: Target,
        inputs: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[Chain]]: ...
    def start_many(
        self,
        tx: Any,
        target: Target,
        inputs: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Unpack[SharedOptions],
    ) -> list[Chain] | Coroutine[Any, Any, list[Chain]]:
        """Start a chain for each input in one round trip; `keys` go with the inputs one by one."""
        batch = self._starter.many(target, inputs, keys, options)
        return self._client.write(tx, start_command(batch))

    @overload
    def start_all(self, tx: SyncTx, starts: Iterable[Start]) -> list[Chain]: ...
    @overload
    def start_all(
        self, tx: AsyncTx, starts: Iterable[Start]
    ) -> Coroutine[Any, Any, list[Chain]]: ...
    def start_all(
        self, tx: Any, starts: Iterable[Start]
    ) -> list[Chain] | Coroutine[Any, Any, list[Chain]]:
        """Start chains of different types and options in one round trip."""
        return self._client.write(tx, start_command(self._starter.all(starts)))

    @overload
    def publish(
        self, tx: SyncTx, event: str, input: Any = None, **options: Unpack[PublishOptions]
    ) -> list[Chain]: ...
    @overload
    def publish(
        self, tx: AsyncTx, event: str, input: Any = None, **options: Unpack[PublishOptions]
    ) -> Coroutine[Any, Any, list[Chain]]: ...
    def publish(
        self, tx: Any, event: str, input: Any = None, **options: Unpack[PublishOptions]
    ) -> list[Chain] | Coroutine[Any, Any, list[Chain]]:
        """Publish an event in the caller's transaction; return a chain per subscribed handler.

        Before anybody has subscribed it is one chain under the event's own name, which waits.
        """
        return self._client.write(tx, publish_command(self._targets, event, input, **options))


def _only(command: Command[list[Chain]]) -> Command[Chain]:
    """Return the command that answers with its only chain."""

    def only(store: Store, conditions: Conditions) -> Op[Change[Chain]]:
        change = yield from command(store, conditions)
        return change.with_answer(change.answer[0])

    return only
