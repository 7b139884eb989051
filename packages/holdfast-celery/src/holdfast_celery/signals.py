"""Celery's signals. Those of tasks are sent in the thread that runs the task, before its outcome is recorded."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from inspect import ismethod
from typing import TYPE_CHECKING, Any

from holdfast.core.events import Event
from holdfast_celery.coverage import refuse_import
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.scope import applications

if TYPE_CHECKING:
    from holdfast_celery.application import Celery

_log = logging.getLogger("holdfast.celery")

Receiver = Callable[..., Any]


class TaskSignal:
    """A signal: receivers are called with `signal`, `sender` and its own arguments; one that fails is logged."""

    def __init__(self, name: str, on_connect: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self._on_connect = on_connect
        self._receivers: dict[Any, tuple[Callable[[], Receiver | None], Any]] = {}
        self._changing = threading.Lock()

    def connect(
        self,
        receiver: Receiver | None = None,
        sender: Any = None,
        weak: bool = True,
        dispatch_uid: Any = None,
        retry: bool = False,
    ) -> Any:
        """Call a function for each signal, or for those of a sender: a task, or its name. Also used as a decorator.

        weak: forget it with its last other reference. dispatch_uid: one of the same is connected once.
        Raises: CeleryUnsupported for `retry`.
        """
        if retry:
            raise CeleryUnsupported(
                f"retry=True of {self.name}.connect is not covered",
                help="a receiver that fails is logged: repeat in it what may fail",
            )
        if receiver is None:
            return partial(self.connect, sender=sender, weak=weak, dispatch_uid=dispatch_uid)
        reference: Callable[[], Receiver | None]
        if weak:
            reference = (
                weakref.WeakMethod(receiver) if ismethod(receiver) else weakref.ref(receiver)
            )
        else:
            reference = partial(_itself, receiver)
        with self._changing:
            self._receivers[_key(receiver, sender, dispatch_uid)] = (reference, sender)
        self._on_connect()
        return receiver

    def disconnect(
        self,
        receiver: Receiver | None = None,
        sender: Any = None,
        weak: bool | None = None,
        dispatch_uid: Any = None,
    ) -> bool:
        """Forget a receiver; return whether it was connected."""
        with self._changing:
            return self._receivers.pop(_key(receiver, sender, dispatch_uid), None) is not None

    def has_listeners(self, sender: Any = None) -> bool:
        """Whether somebody listens, or listens to this sender."""
        wanted = [each for _, each in list(self._receivers.values())]
        return bool(wanted) and (sender is None or any(_is_sender(each, sender) for each in wanted))

    def send(self, sender: Any, **named: Any) -> list[tuple[Receiver, Any]]:
        """Call the receivers; return what each returned or raised."""
        answers: list[tuple[Receiver, Any]] = []
        for reference, wanted in list(self._receivers.values()):
            receiver = reference()
            if receiver is None or not _is_sender(wanted, sender):
                continue
            try:
                answers.append((receiver, receiver(signal=self, sender=sender, **named)))
            except Exception as error:
                _log.exception("a receiver of %s failed: %r", self.name, receiver)
                answers.append((receiver, error))
        return answers

    send_robust = send

    def __repr__(self) -> str:
        return f"<signal {self.name}>"


def _itself(receiver: Receiver) -> Receiver:
    return receiver


def _key(receiver: Receiver | None, sender: Any, uid: Any) -> tuple[Any, Any]:
    same = uid
    if uid is None:
        same = (id(receiver.__self__), receiver.__func__) if ismethod(receiver) else id(receiver)
    return same, sender if isinstance(sender, str) else id(sender)


def _is_sender(wanted: Any, sender: Any) -> bool:
    return wanted is None or wanted is sender or wanted == getattr(sender, "name", sender)


def _observe_cancellations() -> None:
    """Have the applications tell of what they cancel, which costs each write a little."""
    for each in applications():
        each.observe_cancellations()


before_task_publish = TaskSignal("before_task_publish")
task_received = TaskSignal("task_received")
task_revoked = TaskSignal("task_revoked", _observe_cancellations)
task_prerun = TaskSignal("task_prerun")
task_postrun = TaskSignal("task_postrun")
task_success = TaskSignal("task_success")
task_failure = TaskSignal("task_failure")
task_retry = TaskSignal("task_retry")
task_internal_error = TaskSignal("task_internal_error")
import_modules = TaskSignal("import_modules")
setup_logging = TaskSignal("setup_logging")
worker_init = TaskSignal("worker_init")
worker_ready = TaskSignal("worker_ready")
worker_shutting_down = TaskSignal("worker_shutting_down")
worker_shutdown = TaskSignal("worker_shutdown")
worker_process_init = TaskSignal("worker_process_init")
worker_process_shutdown = TaskSignal("worker_process_shutdown")

_OF_WORKERS = {
    "worker_started": (worker_ready,),
    "worker_stopping": (worker_shutting_down,),
    "worker_stopped": (worker_process_shutdown, worker_shutdown),
}


def begin_worker(app: Celery) -> None:
    """Send what comes before a worker, in a thread where the ORM works, and wait for it."""
    if not (setup_logging.has_listeners() or worker_init.has_listeners()):
        return

    def send() -> None:
        root = logging.getLogger()
        setup_logging.send(None, loglevel=root.level, logfile=None, format=None, colorize=False)
        worker_init.send(app)

    thread = threading.Thread(target=send, name="holdfast-worker-init")
    thread.start()
    thread.join()


class FirstTask:
    """Sends `worker_process_init` once in a process, before its first task begins; others wait for it."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._sending = threading.Lock()

    def begin(self, app: Celery) -> None:
        """Send the signal unless this process has had it."""
        if self._process == os.getpid():
            return
        with self._sending:
            if self._process != os.getpid():
                worker_process_init.send(app)
                self._process = os.getpid()


first_task = FirstTask()


class WorkerSignals:
    """An observer that sends the signals of workers, each in a thread of its own: the worker's loop must not wait."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def wants(self, name: str) -> bool:
        """Whether somebody listens to the signal of an event."""
        return any(each.has_listeners() for each in _OF_WORKERS.get(name, ()))

    def observe(self, event: Event) -> None:
        """Send the signal of an event; the process waits for its receivers before it exits."""

        def send() -> None:
            if event.name == "worker_stopping":
                # The sender is the worker's name, as in Celery.
                name, reason = event.fields["worker"], event.fields["reason"]
                worker_shutting_down.send(name, sig=reason, how="Warm", exitcode=0)
                return
            for each in _OF_WORKERS[event.name]:
                each.send(self._app)

        threading.Thread(target=send, name=f"holdfast-{event.name}").start()


def __getattr__(name: str) -> Any:
    """Refuse Celery's other signals, with what to write instead."""
    raise refuse_import(__name__, name)
