"""Durable jobs, outbox events and scheduled tasks on the database you already have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import VERSION

if TYPE_CHECKING:
    from holdfast import errors as errors
    from holdfast.app import Holdfast as Holdfast
    from holdfast.app.seal import Seal as Seal
    from holdfast.client.cycles import RunInfo as RunInfo
    from holdfast.client.start_plan import Start as Start
    from holdfast.client.views import AttemptInfo as AttemptInfo
    from holdfast.client.views import Chain as Chain
    from holdfast.client.views import CompletedChain as CompletedChain
    from holdfast.client.views import JobInfo as JobInfo
    from holdfast.client.views import Page as Page
    from holdfast.core.errors import Aborted as Aborted
    from holdfast.core.errors import Busy as Busy
    from holdfast.core.errors import ChildFailed as ChildFailed
    from holdfast.core.errors import HoldfastError as HoldfastError
    from holdfast.core.errors import Permanent as Permanent
    from holdfast.core.errors import SignalTimeout as SignalTimeout
    from holdfast.core.errors import StepFailed as StepFailed
    from holdfast.core.flow import Fair as Fair
    from holdfast.core.flow import Limit as Limit
    from holdfast.core.flow import Ordered as Ordered
    from holdfast.core.flow import Rate as Rate
    from holdfast.core.keep import Keep as Keep
    from holdfast.core.lease import Lease as Lease
    from holdfast.core.outcome import Cancel as Cancel
    from holdfast.core.outcome import Continue as Continue
    from holdfast.core.outcome import Snooze as Snooze
    from holdfast.core.retry import Retry as Retry
    from holdfast.core.sealing import Sealed as Sealed
    from holdfast.core.sealing import Sealer as Sealer
    from holdfast.scheduler.cycle_run import CycleRun as CycleRun
    from holdfast.scheduler.cycle_run import Shard as Shard
    from holdfast.settings.load import from_env as from_env
    from holdfast.steps.current import current_step as current_step
    from holdfast.worker.job import Job as Job
    from holdfast.worker.job import SyncJob as SyncJob

__version__ = VERSION

_NAMES = {
    "holdfast.app": ("Holdfast",),
    "holdfast.app.seal": ("Seal",),
    "holdfast.client.cycles": ("RunInfo",),
    "holdfast.client.start_plan": ("Start",),
    "holdfast.client.views": ("AttemptInfo", "Chain", "CompletedChain", "JobInfo", "Page"),
    "holdfast.core.errors": (
        "Aborted",
        "Busy",
        "ChildFailed",
        "HoldfastError",
        "Permanent",
        "SignalTimeout",
        "StepFailed",
    ),
    "holdfast.core.flow": ("Fair", "Limit", "Ordered", "Rate"),
    "holdfast.core.lease": ("Lease",),
    "holdfast.core.outcome": ("Cancel", "Continue", "Snooze"),
    "holdfast.core.keep": ("Keep",),
    "holdfast.core.retry": ("Retry",),
    "holdfast.core.sealing": ("Sealed", "Sealer"),
    "holdfast.errors": ("errors",),
    "holdfast.scheduler.cycle_run": ("CycleRun", "Shard"),
    "holdfast.settings.load": ("from_env",),
    "holdfast.steps.current": ("current_step",),
    "holdfast.worker.job": ("Job", "SyncJob"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Aborted", "AttemptInfo", "Busy", "Cancel", "Chain", "ChildFailed", "CompletedChain", "Continue", "CycleRun",
    "Fair", "Holdfast", "HoldfastError", "Job", "JobInfo", "Keep", "Lease", "Limit", "Ordered", "Page", "Permanent",
    "Rate", "Retry", "RunInfo", "Seal", "Sealed", "Sealer", "Shard", "SignalTimeout", "Snooze", "Start",
    "StepFailed", "SyncJob", "__version__", "current_step", "errors", "from_env",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that nobody pays for parts they do not use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value = globals()[name] = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
