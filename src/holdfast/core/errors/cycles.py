"""HF08x: cycles that are not known, and the calls they make."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class CycleError(HoldfastError):
    """What was asked of a cycle is not possible."""


class CycleNotFound(CycleError):
    """No cycle has this name.

    Cycles are registered by the workers that run them, at their start. A cycle that no worker has
    registered yet cannot be paused, resumed or run.
    """

    code = "HF082"
    fix = "check the name with `holdfast cycles list`"


class DuplicateCycle(CycleError):
    """Two cycles have the same name.

    The name is the key of the cycle's lock, its slots and its runs, and it is the runner's name in
    a tick, so it has to be unique among cycles and runners.
    """

    code = "HF083"
    fix = "give one of them another name"


class ServiceCallFailed(CycleError):
    """A service call was not answered with success.

    Cycles may call an API with a service token and an idempotency key that stays the same for the
    slot, so a call can be repeated safely when its slot runs again.
    """

    code = "HF084"
    fix = "check WORKER_API_BASE_URL and WORKER_API_SERVICE_TOKEN, and the API's own log"
    retryable = True
