"""The errors of service calls, in the order of their codes."""

from __future__ import annotations

from typing import ClassVar

from holdfast.core.errors import CycleError, HoldfastError


class ServiceCallFailed(CycleError, code="HF084", retryable=True):
    """A service call failed.

    Cycles may call an API with a service token and an idempotency key that is the same for every
    run of a slot, so a call is safe to repeat.
    """

    fix = "check WORKER_API_BASE_URL and WORKER_API_SERVICE_TOKEN, and the API's own log"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        problem_code: str | None = None,
        help: str | None = None,
    ) -> None:
        """Also give the response's status and the code in its problem document; None without a response."""
        super().__init__(message, help=help)
        self.status = status
        self.problem_code = problem_code


class ServiceCallRejected(HoldfastError):
    """The guard of an API rejected a service call."""

    http_status: ClassVar[int] = 403

    @property
    def status(self) -> int:
        """The status to respond with."""
        return self.http_status


class ServiceTokenUnset(ServiceCallRejected, code="HF085", http_status=503):
    """The API has no service token.

    Without a token the guard could not tell your callers from anyone else, so it rejects every call
    until one is set.
    """

    fix = "set WORKER_API_SERVICE_TOKEN in the API's environment, the same as in the worker's"


class ServiceTokenWrong(ServiceCallRejected, code="HF086", http_status=401):
    """The service token is missing or wrong.

    Service calls carry the token in the header x-service-token. During a rotation the guard also
    accepts WORKER_API_SERVICE_TOKEN_PREVIOUS.
    """

    fix = "set the same WORKER_API_SERVICE_TOKEN for the worker and for the API"


class IdempotencyKeyMissing(ServiceCallRejected, code="HF087", http_status=400):
    """A service call has no usable idempotency key.

    The key is recorded with the work, so that a repeated call does nothing. Without one, every retry
    would do the work again.
    """

    fix = "send the header Idempotency-Key, the same for every try: ServiceClient sends run.key"


class CallAlreadyDone(ServiceCallRejected, code="HF088", http_status=409):
    """The work of this idempotency key has already been done.

    The key was recorded in the transaction that did the work. ServiceClient treats this response as
    success, so a slot whose first response was lost still completes.
    """

    fix = "nothing to do; send another key for other work"
