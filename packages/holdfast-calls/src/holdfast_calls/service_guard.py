"""The guard of an API that does the work of service calls.

It checks token and key before anything else happens, and records the key in the transaction of the work: both
commit together, so a call whose first try was rolled back can come again, and one that was done cannot.
"""

from __future__ import annotations

import hmac
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, overload

from holdfast.app import Holdfast
from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import AsyncAdapter, AsyncTx, SyncTx
from holdfast.core.errors import InvalidOption, MissingExtra
from holdfast.settings import load_some
from holdfast_calls.errors import (
    CallAlreadyDone,
    IdempotencyKeyMissing,
    ServiceCallRejected,
    ServiceTokenUnset,
    ServiceTokenWrong,
)
from holdfast_calls.service_client import KEY_HEADER, TOKEN_HEADER

with suppress(ImportError):  # only the FastAPI dependency needs it
    from starlette.requests import Request

MAX_KEY_LENGTH = 255
_VARIABLES = ("WORKER_API_SERVICE_TOKEN", "WORKER_API_SERVICE_TOKEN_PREVIOUS")


class ServiceCall:
    """A call with a valid token; `key` is its idempotency key, `scope` what it asks for."""

    def __init__(self, app: Holdfast, scope: str, key: str) -> None:
        self._app = app
        self.scope = scope
        self.key = key

    @overload
    def once(self, tx: SyncTx) -> None: ...
    @overload
    def once(self, tx: AsyncTx) -> Coroutine[Any, Any, None]: ...
    def once(self, tx: Any) -> Any:
        """Record the key in the transaction of the work, before the work; with an async one, await it.

        A concurrent call with the same key waits here until this transaction ends. Raises: CallAlreadyDone.
        """
        first = self._app.use_key(tx, self.scope, self.key)
        if not isinstance(first, bool):
            return self._once_async(first)
        if not first:
            # The refusal rolls the caller's transaction back: another one waits until the key would survive a failover.
            database = self._app.database
            database.read(database.store.schema.confirm())
            raise self._done()
        return None

    async def _once_async(self, first: Coroutine[Any, Any, bool]) -> None:
        if not await first:
            database = self._app.database
            await database.read_async(database.store.schema.confirm())
            raise self._done()

    def _done(self) -> CallAlreadyDone:
        return CallAlreadyDone(f"{self.scope} was already done for the key {self.key[:100]!r}")


class ServiceGuard:
    """Admits service calls with a valid token and an idempotency key. Without a token it admits none."""

    def __init__(self, app: Holdfast, *, tokens: Sequence[str] | None = None) -> None:
        """Take the application whose database keeps the keys.

        tokens: those that are accepted, several during a rotation; by default WORKER_API_SERVICE_TOKEN and
        WORKER_API_SERVICE_TOKEN_PREVIOUS, read at the first call.
        """
        if isinstance(tokens, str):
            raise InvalidOption("tokens is a string", help="pass a list: tokens=[token]")
        self._app = app
        self._tokens = None if tokens is None else list(tokens)
        self._digests: list[bytes] | None = None

    def admit(self, headers: Mapping[str, str], scope: str) -> ServiceCall:
        """Check the headers of a request; `scope` is what it asks for, such as "POST /internal/billing/runs".

        Raises: ServiceTokenUnset, ServiceTokenWrong, IdempotencyKeyMissing.
        """
        given = {name.lower(): value for name, value in headers.items()}
        self._check_token(given.get(TOKEN_HEADER, ""))
        return ServiceCall(self._app, scope, _checked_key(given.get(KEY_HEADER, "")))

    def _check_token(self, token: str) -> None:
        accepted = self._accepted_digests()
        if not accepted:
            raise ServiceTokenUnset("this API has no service token, so it accepts no service calls")
        # Digests have one length, and all are compared: the time tells nothing about a token.
        digest = _digest(token)
        matches = [hmac.compare_digest(digest, each) for each in accepted]
        if not any(matches):
            raise ServiceTokenWrong(
                f"the header {TOKEN_HEADER} {'is wrong' if token else 'is missing'}"
            )

    def _accepted_digests(self) -> list[bytes]:
        if self._digests is None:
            tokens = self._tokens
            if tokens is None:
                tokens = [str(each or "") for each in load_some(_VARIABLES, {}).values()]
            self._digests = [_digest(each) for each in tokens if each.strip()]
        return self._digests


def _digest(token: str) -> bytes:
    return sha256(token.strip().encode("utf-8", "surrogatepass")).digest()


def _checked_key(key: str) -> str:
    key = key.strip()
    if not key:
        raise IdempotencyKeyMissing("the header Idempotency-Key is missing")
    if len(key) > MAX_KEY_LENGTH or not key.isprintable():
        raise IdempotencyKeyMissing(
            f"the header Idempotency-Key is not a printable text of at most {MAX_KEY_LENGTH} characters"
        )
    return key


def service_call(guard: ServiceGuard, tx: Any) -> Any:
    """Return a FastAPI dependency that admits a service call and records its key in the endpoint's transaction.

    tx: the dependency that opens it, which the endpoint uses too: `session(sessions)` or `transaction(jobs)` of
    `holdfast.contrib.fastapi`, or your own `Depends(…)`. The token is checked before it opens.

    Raises: MissingExtra.
    """
    try:
        from fastapi import Depends
    except ImportError as error:
        raise MissingExtra("service_call needs FastAPI", help="pip install fastapi") from error

    async def admit(request: Request) -> ServiceCall:
        with _answer_rejections(request):
            return guard.admit(request.headers, f"{request.method} {request.url.path}")

    admitted: Any = Depends(admit)

    async def record(
        request: Request, call: ServiceCall = admitted, opened: Any = tx
    ) -> ServiceCall:
        with _answer_rejections(request):
            await _record(call, opened)
        return call

    return Depends(record)


async def _record(call: ServiceCall, tx: Any) -> None:
    if isinstance(adapter_of(tx), AsyncAdapter):
        await call.once(tx)
        return
    from starlette.concurrency import run_in_threadpool

    await run_in_threadpool(call.once, tx)


@contextmanager
def _answer_rejections(request: Request) -> Iterator[None]:
    """Answer a rejected call with its status and problem also where the application has no handler for our errors."""
    from starlette.exceptions import HTTPException

    from holdfast.web.middleware import given_request_id
    from holdfast.web.problems import problem

    try:
        yield
    except ServiceCallRejected as error:
        handled = {*request.app.exception_handlers} - {Exception}
        if handled.intersection(type(error).__mro__):
            raise
        document: Any = problem(error, given_request_id(request))
        raise HTTPException(error.status, document) from error
