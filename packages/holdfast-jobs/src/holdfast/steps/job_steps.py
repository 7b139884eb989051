"""What a handler calls on its job to be a durable function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, TypeVarTuple, Unpack, overload

from holdfast.core.duration import Duration
from holdfast.core.retry import Retry
from holdfast.steps.actions import StepOptions
from holdfast.steps.function import DurableFunction

if TYPE_CHECKING:
    from holdfast.client.enqueue import AsyncHandler, SyncHandler
    from holdfast.client.start_options import SharedOptions, StartOptions

R = TypeVar("R")
V = TypeVar("V")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
Ts = TypeVarTuple("Ts")

Begin = Callable[[], AbstractContextManager[Any]]
AsyncBegin = Callable[[], AbstractAsyncContextManager[Any]]
"""Begins a transaction of the application's own, which commits at the end of its block: `sessions.begin`."""


class JobSteps:
    """The durable calls of a job; in an async handler, await them."""

    __slots__ = ()

    def durable_function(self) -> DurableFunction:
        """The function of this attempt, opened by its first durable call. Raises: StepsRefused."""
        raise NotImplementedError

    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        key: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        atomic: Literal[False] = ...,
        undo: Callable[[R], Coroutine[Any, Any, object]] | None = ...,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[Any, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        key: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        atomic: Literal[True] | AsyncBegin,
        undo: Callable[[Any, R], Coroutine[Any, Any, object]] | None = ...,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], R],
        *arguments: *Ts,
        key: object = ...,
        retry: Retry | None = ...,
        atomic: Literal[False] = ...,
        undo: Callable[[R], object] | None = ...,
    ) -> R: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[Any, *Ts], R],
        *arguments: *Ts,
        key: object = ...,
        retry: Retry | None = ...,
        atomic: Literal[True] | Begin,
        undo: Callable[[Any, R], object] | None = ...,
    ) -> R: ...
    def step(  # type: ignore[misc]
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        key: object = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        atomic: bool | Callable[[], Any] = False,
        undo: Callable[..., Any] | None = None,
    ) -> Any:
        """Call a function once: its result is recorded, and every later attempt gets it from there.

        Steps of one name need a `key` where they run at the same time. A step that fails is tried again by `retry`, by
        default the job type's; in between the job is parked. With `atomic`, the function gets a transaction first,
        which commits together with the record; `atomic=sessions.begin` begins one of your own. `undo` is called with
        the result if the job fails for good, and with the transaction before it where the step is atomic.
        Raises: StepFailed, after the last try; StepConflict, StepUnreadable, TooManySteps, PayloadError, InvalidOption.
        """
        options = StepOptions(key, retry, timeout, atomic, undo)
        own = self.durable_function()
        return own.call(own.step(name, function, arguments, options))

    def sleep(
        self, duration: Duration | datetime, *, key: object = None
    ) -> Coroutine[Any, Any, None]:
        """Go on after so long, or at a time; the job is parked until then and holds nothing.

        The end is fixed when this is first reached. Sleeps at the same time need a `key`.
        """
        own = self.durable_function()
        found: Coroutine[Any, Any, None] = own.call(own.sleep(duration, key))
        return found

    @overload
    def wait_for(
        self, signal: str, *, key: object = ..., timeout: Duration | None = ..., returns: type[R]
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def wait_for(
        self, signal: str, *, key: object = ..., timeout: Duration | None = ...
    ) -> Coroutine[Any, Any, Any]: ...
    def wait_for(
        self,
        signal: str,
        *,
        key: object = None,
        timeout: Duration | None = None,
        returns: Any = None,
    ) -> Any:
        """Wait for a signal of this name and key, and return its data as `returns`; parked until then.

        Raises: SignalTimeout when none came within `timeout`.
        """
        own = self.durable_function()
        return own.call(own.wait_for(signal, key, timeout, returns))

    @overload
    def run(
        self,
        target: AsyncHandler[InputT, OutputT],
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Coroutine[Any, Any, OutputT]: ...
    @overload
    def run(
        self,
        target: SyncHandler[InputT, OutputT],
        input: InputT = ...,
        **options: Unpack[StartOptions],
    ) -> Coroutine[Any, Any, OutputT]: ...
    @overload
    def run(
        self, target: str, input: Any = ..., **options: Unpack[StartOptions]
    ) -> Coroutine[Any, Any, Any]: ...
    def run(self, target: Any, input: Any = None, **options: Any) -> Any:
        """Start a chain and return its output, parked until it ends; takes what `app.start` takes.

        Raises: ChildFailed when it did not complete.
        """
        own, key = self.durable_function(), options.pop("key", None)
        keys = None if key is None else [key]
        return own.call(own.run(target, [input], keys, options, is_single=True))

    @overload
    def run_many(
        self,
        target: AsyncHandler[InputT, OutputT],
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = ...,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[OutputT]]: ...
    @overload
    def run_many(
        self,
        target: SyncHandler[InputT, OutputT],
        inputs: Iterable[InputT],
        *,
        keys: Iterable[str | None] | None = ...,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[OutputT]]: ...
    @overload
    def run_many(
        self,
        target: str,
        inputs: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = ...,
        **options: Unpack[SharedOptions],
    ) -> Coroutine[Any, Any, list[Any]]: ...
    def run_many(
        self,
        target: Any,
        inputs: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = None,
        **options: Any,
    ) -> Any:
        """Start a chain for each input and return all outputs, parked until the last one ends.

        Raises: ChildFailed when one of them did not complete.
        """
        own, given = self.durable_function(), None if keys is None else list(keys)
        return own.call(own.run(target, list(inputs), given, options, is_single=False))

    def cursor(self, name: str, start: V) -> Coroutine[Any, Any, JobCursor[V]]:
        """Return the position of a long loop that begins at `start`: `cursor.value`, moved by `cursor.set(…)`.

        It is written at most once a second and when the attempt ends, so a replay may repeat the last moments.
        """
        own = self.durable_function()
        found: Coroutine[Any, Any, JobCursor[V]] = own.call(own.cursor(name, start))
        return found


if TYPE_CHECKING:

    class JobCursor(Generic[V]):
        """The position of a long loop."""

        value: V

        def set(self, value: V) -> Coroutine[Any, Any, None]:
            """Move it."""
            raise NotImplementedError

    class SyncCursor(Generic[V]):
        """The position of a long loop in a sync handler."""

        value: V

        def set(self, value: V) -> None:
            """Move it."""
            raise NotImplementedError

    class SyncSteps(JobSteps):
        """The same in a sync handler, as type checkers see it."""

        def sleep(self, duration: Duration | datetime, *, key: object = None) -> None: ...  # type: ignore[override]
        @overload  # type: ignore[override]
        def wait_for(
            self,
            signal: str,
            *,
            key: object = ...,
            timeout: Duration | None = ...,
            returns: type[R],
        ) -> R: ...
        @overload
        def wait_for(
            self, signal: str, *, key: object = ..., timeout: Duration | None = ...
        ) -> Any: ...
        def wait_for(self, *_: Any, **__: Any) -> Any: ...
        @overload  # type: ignore[override]
        def run(
            self,
            target: AsyncHandler[InputT, OutputT],
            input: InputT = ...,
            **options: Unpack[StartOptions],
        ) -> OutputT: ...
        @overload
        def run(
            self,
            target: SyncHandler[InputT, OutputT],
            input: InputT = ...,
            **options: Unpack[StartOptions],
        ) -> OutputT: ...
        @overload
        def run(self, target: str, input: Any = ..., **options: Unpack[StartOptions]) -> Any: ...
        def run(self, *_: Any, **__: Any) -> Any: ...
        @overload  # type: ignore[override]
        def run_many(
            self,
            target: AsyncHandler[InputT, OutputT],
            inputs: Iterable[InputT],
            *,
            keys: Iterable[str | None] | None = ...,
            **options: Unpack[SharedOptions],
        ) -> list[OutputT]: ...
        @overload
        def run_many(
            self,
            target: SyncHandler[InputT, OutputT],
            inputs: Iterable[InputT],
            *,
            keys: Iterable[str | None] | None = ...,
            **options: Unpack[SharedOptions],
        ) -> list[OutputT]: ...
        @overload
        def run_many(
            self,
            target: str,
            inputs: Iterable[Any],
            *,
            keys: Iterable[str | None] | None = ...,
            **options: Unpack[SharedOptions],
        ) -> list[Any]: ...
        def run_many(self, *_: Any, **__: Any) -> Any: ...
        def cursor(self, name: str, start: V) -> SyncCursor[V]: ...  # type: ignore[override]
