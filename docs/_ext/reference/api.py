"""The Python reference: the public API by task, read by autodoc."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, is_typeddict

from docs._ext.reference.undocumented import require

import holdfast

SECTIONS: Mapping[str, Sequence[str]] = {
    "The application": ("holdfast.Holdfast",),
    "Options": (
        "holdfast.core.registry.TypeOptions",
        "holdfast.client.start_options.SharedOptions",
        "holdfast.client.start_options.StartOptions",
        "holdfast.client.enqueue.PublishOptions",
        "holdfast.app.CycleOptions",
        "holdfast.from_env",
        "holdfast.Start",
        "holdfast.Retry",
        "holdfast.Lease",
        "holdfast.Keep",
        "holdfast.Limit",
        "holdfast.Rate",
        "holdfast.Fair",
        "holdfast.Ordered",
    ),
    "Settings": (
        "holdfast.settings.load_settings",
        "holdfast.settings.event_retry",
        "holdfast.settings.milliseconds",
    ),
    "Sealed payloads": ("holdfast.Seal", "holdfast.Sealer", "holdfast.Sealed"),
    "Handlers": (
        "holdfast.Job",
        "holdfast.Continue",
        "holdfast.Snooze",
        "holdfast.Cancel",
        "holdfast.Permanent",
        "holdfast.Busy",
        "holdfast.Aborted",
        "holdfast.CycleRun",
        "holdfast.Shard",
    ),
    "Durable functions": (
        "holdfast.steps.job_steps.JobSteps",
        "holdfast.SyncJob",
        "holdfast.steps.function.Cursor",
        "holdfast.current_step",
        "holdfast.steps.current.StepInfo",
        "holdfast.client.enqueue.SignalOptions",
        "holdfast.StepFailed",
        "holdfast.ChildFailed",
        "holdfast.SignalTimeout",
    ),
    "Resources": (
        "holdfast.client.chains.Chains",
        "holdfast.client.jobs.Jobs",
        "holdfast.client.jobs.DeadLetters",
        "holdfast.client.cycles.Cycles",
        "holdfast.client.workers.Workers",
        "holdfast.client.subscriptions.Subscriptions",
    ),
    "Return types": (
        "holdfast.Chain",
        "holdfast.CompletedChain",
        "holdfast.JobInfo",
        "holdfast.AttemptInfo",
        "holdfast.Page",
        "holdfast.RunInfo",
        "holdfast.HoldfastError",
    ),
    "Service calls": (
        "holdfast_calls.ServiceClient",
        "holdfast_calls.ServiceGuard",
        "holdfast_calls.ServiceCall",
        "holdfast_calls.service_call",
    ),
    "Requests that wait": (
        "holdfast_calls.wait_or_accept",
        "holdfast_calls.Waited",
        "holdfast_calls.Ready",
        "holdfast_calls.Failed",
    ),
    "Web applications": (
        "holdfast.contrib.starlette.lifespan",
        "holdfast.contrib.starlette.mount_dashboard",
        "holdfast.contrib.starlette.problem_handler",
        "holdfast.contrib.fastapi.transaction",
        "holdfast.contrib.fastapi.session",
        "holdfast.contrib.sqlalchemy_url.sqlalchemy_url",
        "holdfast.contrib.alembic.include_name",
        "holdfast.contrib.sqlalchemy_url.open_async_engine",
    ),
    "Django": (
        "holdfast_django.database_url",
        "holdfast_django.tasks.HoldfastBackend",
        "holdfast_django.tasks.DjangoTaskOptions",
        "holdfast_django.tasks.task",
        "holdfast_django.test_cases.RunsTasks",
    ),
    "From Celery": (
        "holdfast_celery.Celery",
        "holdfast_celery.shared_task",
        "holdfast_celery.CeleryTask",
        "holdfast_celery.TaskSignature",
        "holdfast_celery.signature",
        "holdfast_celery.chain",
        "holdfast_celery.group",
        "holdfast_celery.chord",
        "holdfast_celery.crontab",
        "holdfast_celery.AsyncResult",
        "holdfast_celery.GroupResult",
        "holdfast_celery.TaskRetry",
        "holdfast_celery.MaxRetriesExceededError",
    ),
    "Groups": (
        "holdfast_context.add_context",
        "holdfast_context.TravelContext",
        "holdfast_groups.add_groups",
        "holdfast_groups.JobGroups",
        "holdfast_groups.AsyncJobGroups",
        "holdfast_groups.GroupProgress",
    ),
    "Output": (
        "holdfast_output.add_output",
        "holdfast_output.ChainOutput",
        "holdfast_output.AsyncChainOutput",
        "holdfast_output.OutputItem",
        "holdfast_output.starlette.stream_response",
        "holdfast_output.django.stream_response",
        "holdfast_output.flask.stream_response",
    ),
    "Leases for your own tables": (
        "holdfast_leases.LeasedTable",
        "holdfast_leases.Claimed",
        "holdfast_leases.RowRetry",
        "holdfast_leases.Retried",
        "holdfast_leases.to_instant",
        "holdfast_leases.to_datetime",
        "holdfast_leases.KeptRows",
        "holdfast_leases.AsyncKeptRows",
    ),
    "Files": (
        "holdfast_files.open_files",
        "holdfast_files.Files",
        "holdfast_files.AsyncFiles",
        "holdfast_files.StoredFile",
        "holdfast_files.ListedFile",
        "holdfast_files.content_key",
        "holdfast_files.check_key",
        "holdfast_files.add_large_values",
        "holdfast_files.LargeValues",
    ),
    "Archive": (
        "holdfast_archive.add_archive",
        "holdfast_archive.move_rows",
        "holdfast_archive.Archive",
        "holdfast_archive.ArchiveReport",
        "holdfast_archive.Progress",
        "holdfast_archive.Restored",
        "holdfast_archive.manifest.Manifest",
        "holdfast_archive.manifest.ArchivedObject",
    ),
    "Schedules set at run time": (
        "holdfast_schedules.add_schedules",
        "holdfast_schedules.Schedules",
        "holdfast_schedules.ScheduleInfo",
        "holdfast_schedules.SlotInfo",
        "holdfast_schedules.slot_of",
        "holdfast_schedules.ScheduledFor",
    ),
    "Streams": (
        "holdfast_streams.add_streams",
        "holdfast_streams.Streams",
        "holdfast_streams.StreamEvent",
        "holdfast_streams.inbox.declaration.Inboxes",
        "holdfast_streams.Message",
        "holdfast_streams.WebhookRequest",
        "holdfast_streams.stripe_signature",
        "holdfast_streams.github_signature",
        "holdfast_streams.standard_signature",
        "holdfast_streams.hmac_signature",
        "holdfast_streams.inbox_routes",
        "holdfast_streams.inbox_blueprint",
        "holdfast_streams.inbox_view",
        "holdfast_streams.JetStream",
        "holdfast_streams.RedisStream",
    ),
    "Dashboard and observability": (
        "holdfast.web.app.create",
        "holdfast.observe.logging.LoggingObserver",
        "holdfast.observe.prometheus.PrometheusObserver",
        "holdfast_otel.use_opentelemetry",
        "holdfast_otel.OtelObserver",
        "holdfast.observe.context.JobContext",
    ),
    "Notifiers": (
        "holdfast.notify.base.Notifier",
        "holdfast.notify.base.Listener",
        "holdfast.notify.base.Hint",
    ),
    "Testing": ("holdfast_testing.kit.Kit",),
    "Extensions": ("holdfast.extensions.Extension", "holdfast.extensions.LazyCommand"),
}

_NOT_CLASSES = {"__version__", "errors"}


def page() -> str:
    """Return autodoc's directives for all of it. Raises: Undocumented."""
    shown = [name for names in SECTIONS.values() for name in names]
    public = {f"holdfast.{name}" for name in holdfast.__all__ if name not in _NOT_CLASSES}
    require("public names that no section shows", public.difference(shown))
    require("public names without text", (each for name in shown for each in undocumented(name)))
    return "\n".join(_section(title, names) for title, names in SECTIONS.items())


def undocumented(name: str) -> Iterator[str]:
    """Name what lacks a docstring: the object itself, and the public methods of a class."""
    found = _object(name)
    if not inspect.getdoc(found):
        yield name
    if not inspect.isclass(found):
        return
    for member, value in inspect.getmembers(found, _has_words):
        if not member.startswith("_") and not inspect.getdoc(value) and _is_ours(value):
            yield f"{name}.{member}"


def _section(title: str, names: Sequence[str]) -> str:
    directives = [line for name in names for line in _directive(name)]
    return "\n".join([f"## {title}\n", "```{eval-rst}", *directives, "```", ""])


_AMBIGUOUS = {"holdfast_celery.TaskSignature": ("type",)}
"""Where Sphinx could not tell which of two members an annotation means that is a class of Python."""


def _directive(name: str) -> list[str]:
    found = _object(name)
    if not inspect.isclass(found):
        return [f".. autofunction:: {name}", ""]
    options = ["   :members:"]
    members = [each for each, value in vars(found).items() if _is_borrowed(found, each, value)]
    if hidden := [*members, *_AMBIGUOUS.get(name, ())]:
        options.append(f"   :exclude-members: {', '.join(hidden)}")
    if issubclass(found, holdfast.Holdfast):
        options.append("   :inherited-members:")
    if is_typeddict(found):
        options.append("   :undoc-members:")
    return [f".. autoclass:: {name}", *options, ""]


def _is_borrowed(owner: type, name: str, value: object) -> bool:
    """Whether a class attribute is a class with an entry of its own, which Sphinx would describe twice."""
    return inspect.isclass(value) and value.__qualname__ != f"{owner.__qualname__}.{name}"


def _object(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def _has_words(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, property)


def _is_ours(value: Any) -> bool:
    function = value.fget if isinstance(value, property) else value
    return str(getattr(function, "__module__", "")).startswith("holdfast")
