"""Base classes with hooks, and signals: each test runs against Celery itself and against the look-alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import pytest

from holdfast_celery import Celery, shared_task
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.tasks import CeleryTask as Task
from holdfast_testing.kit import Kit
from tests.from_celery.sides import Side
from tests.support.until import wait_until

Calls = list[tuple[Any, ...]]


def base_of(side: Side, calls: Calls) -> type[Any]:
    """A class whose hooks note their calls, with options for its tasks."""
    parent: Any = side.module().Task

    class Noting(parent):  # type: ignore[misc]
        abstract = True
        max_retries = 1
        default_retry_delay = 0
        kept = "of the class"

        def __init__(self) -> None:
            self.made = True

        def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
            calls.append(("before_start", list(args), dict(kwargs)))

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            calls.append(("on_success", retval))

        def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            calls.append(("on_failure", repr(exc), "ValueError: no" in str(einfo.traceback)))

        def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            calls.append(("on_retry", repr(exc)))

        def after_return(
            self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
        ) -> None:
            calls.append(("after_return", status))

    return Noting


def test_hooks_of_a_base_class_are_called_in_order(side: Side) -> None:
    calls: Calls = []

    @side.task(name="work", base=base_of(side, calls))
    def work(a: int, b: int = 0) -> int:
        calls.append(("run",))
        if a < 0:
            raise ValueError("no")
        return a + b

    assert side.get(work.delay(1, b=2)) == 3
    expected = ["before_start", "run", "on_success", "after_return"]
    wait_until(lambda: len(calls) == 4)
    assert [each[0] for each in calls] == expected
    assert calls[0] == ("before_start", [1], {"b": 2})
    assert calls[2:] == [("on_success", 3), ("after_return", "SUCCESS")]
    calls.clear()
    side.end(work.delay(-1))
    wait_until(lambda: len(calls) == 4)
    assert calls[2:] == [("on_failure", "ValueError('no')", True), ("after_return", "FAILURE")]
    assert (work.max_retries, work.kept, work.made) == (1, "of the class", True)


def test_hooks_are_called_where_a_task_is_applied(side: Side) -> None:
    calls: Calls = []

    @side.task(name="work", base=base_of(side, calls))
    def work(a: int) -> int:
        return a

    work.apply((1,))
    assert [each[0] for each in calls] == ["before_start", "on_success", "after_return"]


def test_a_retry_calls_its_hook(side: Side) -> None:
    calls: Calls = []

    @side.task(name="work", base=base_of(side, calls), bind=True)
    def work(self: Any) -> int:
        if not self.request.retries:
            raise self.retry(exc=OSError("busy"), countdown=0)
        return 5

    assert work.apply().get() == 5
    assert ("on_retry", "OSError('busy')") in calls
    assert [each for each in calls if each[0] == "after_return"] == [("after_return", "SUCCESS")]


def test_a_call_does_not_change_how_often_a_task_is_retried(side: Side) -> None:
    @side.task(name="work", bind=True, max_retries=1)
    def work(self: Any) -> int:
        if not self.request.retries:
            raise self.retry(countdown=0)
        return 5

    assert work.apply(max_retries=0).get() == 5


def test_a_base_class_wraps_the_call(side: Side) -> None:
    parent: Any = side.module().Task

    class Doubling(parent):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return 2 * super().__call__(*args, **kwargs)

    @side.task(name="work", base=Doubling, bind=True)
    def work(self: Any, a: int) -> int:
        return a if self.request.id and not self.request.called_directly else -1

    assert side.get(work.delay(4)) == 8


def test_a_base_class_changes_how_its_tasks_are_started(side: Side) -> None:
    parent: Any = side.module().Task

    class Numbered(parent):  # type: ignore[misc]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return super().apply_async(args, {**(kwargs or {}), "number": 7}, **options)

    @side.task(name="work", base=Numbered)
    def work(a: int, number: int = 0) -> list[int]:
        return [a, number]

    assert side.get(work.delay(1)) == [1, 7]
    assert side.get(work.apply_async((2,), countdown=0)) == [2, 7]
    assert side.get(work.s(3).apply_async()) == [3, 7]
    assert side.get(work.s().delay(4)) == [4, 7]


def test_the_class_of_an_application_is_that_of_its_tasks(side: Side) -> None:
    made: Any = side.app
    parent: Any = made.Task

    class Marked(parent):  # type: ignore[misc]
        abstract = True
        max_retries = 7

        def __init__(self) -> None:
            self.made = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return ["marked", super().__call__(*args, **kwargs)]

    class Own(side.module().Task):  # type: ignore[misc]
        abstract = True

    made.Task = Marked

    @side.task(name="work")
    def work(a: int) -> int:
        return a

    @side.task(name="other", base=Own)
    def other(a: int) -> int:
        return a

    assert side.get(work.delay(1)) == ["marked", 1]
    assert work.apply((2,)).get() == ["marked", 2]
    assert (work.name, work.max_retries, work.made) == ("work", 7, True)
    assert isinstance(work, Marked)
    assert side.get(other.delay(3)) == 3


def test_the_class_of_an_application_is_that_of_tasks_made_before_it_was_set() -> None:
    app = Celery("shop")
    calls: Calls = []

    @shared_task(max_retries=2)
    def early(a: int) -> int:
        return a

    class Noting(Task):
        max_retries = 7
        default_retry_delay = 5

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            calls.append((retval,))

    app.Task = Noting
    assert early.apply((1,)).get() == 1
    assert (calls, early.max_retries, early.default_retry_delay) == ([(1,)], 2, 5)
    app.load_tasks()
    app.Task = type("Late", (Task,), {})
    assert isinstance(app.task(name="late")(print), app.Task)
    assert isinstance(early, Noting)


CLASSES: dict[str, dict[str, Any]] = {
    "acks_late": {"acks_late": False},
    "serializer": {"serializer": "pickle"},
    "Request": {"Request": "shop.requests:Request"},
    "shadow_name": {"shadow_name": lambda self, args, kwargs, options: "shadow"},
    "on_bound": {"on_bound": classmethod(lambda cls, app: None)},
}
"""What a base class may say in Celery and nothing here would ask it for."""


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_base_class_says_in_vain_is_refused(name: str) -> None:
    app = Celery("shop")
    base = type("Base", (Task,), CLASSES[name])
    with pytest.raises(CeleryUnsupported, match=f"{name}.* of Base"):
        app.task(base=base)(print)


@pytest.mark.parametrize("name", ["queue", "rate_limit", "max_retries", "soft_time_limit"])
def test_an_option_that_is_set_after_the_decorator_is_refused(name: str) -> None:
    task = Celery("shop").task(print)
    with pytest.raises(CeleryUnsupported, match=f"{name} of builtins.print is set after"):
        setattr(task, name, "10/m")
    task.acks_late = True
    task.mine = 5
    assert task.mine == 5  # type: ignore[attr-defined]


@contextmanager
def receiving(side: Side, calls: Calls) -> Iterator[None]:
    """Note the signals of tasks while the block runs."""
    signals = side.module("signals")

    def on_prerun(task_id: str, task: Any, args: Any, kwargs: Any, **_: Any) -> None:
        calls.append(("prerun", task.name, list(args), threading.get_ident()))

    def on_postrun(task: Any, retval: Any, state: str, **_: Any) -> None:
        calls.append(("postrun", task.name, repr(retval), state))

    def on_success(sender: Any, result: Any, **_: Any) -> None:
        calls.append(("success", sender.name, result))

    def on_failure(sender: Any, exception: Any, traceback: Any, einfo: Any, **_: Any) -> None:
        calls.append(("failure", sender.name, repr(exception), traceback is not None))

    def on_retry(sender: Any, request: Any, reason: Any, **_: Any) -> None:
        calls.append(("retry", sender.name, request.retries))

    receivers: dict[str, Callable[..., None]] = {
        "task_prerun": on_prerun,
        "task_postrun": on_postrun,
        "task_success": on_success,
        "task_failure": on_failure,
        "task_retry": on_retry,
    }
    with ExitStack() as connected:
        for name, receiver in receivers.items():
            signal = getattr(signals, name)
            signal.connect(receiver)
            connected.callback(signal.disconnect, receiver)
        yield


def test_signals_of_a_task_are_sent_in_its_own_thread(side: Side) -> None:
    calls: Calls = []

    @side.task(name="work")
    def work(a: int) -> int:
        calls.append(("run", threading.get_ident()))
        if a < 0:
            raise ValueError("no")
        return a

    with receiving(side, calls):
        side.get(work.delay(1))
        wait_until(lambda: len(calls) == 4)
        side.end(work.delay(-1))
        wait_until(lambda: len(calls) == 8)
    assert [each[0] for each in calls] == [
        *("prerun", "run", "success", "postrun"),
        *("prerun", "run", "failure", "postrun"),
    ]
    assert calls[0] == ("prerun", "work", [1], calls[1][1])
    assert calls[2:4] == [("success", "work", 1), ("postrun", "work", "1", "SUCCESS")]
    assert calls[6:] == [
        ("failure", "work", "ValueError('no')", True),
        ("postrun", "work", "ValueError('no')", "FAILURE"),
    ]


def test_a_receiver_may_listen_to_one_task_and_its_errors_change_nothing(side: Side) -> None:
    signals, seen = side.module("signals"), list[str]()

    @side.task(name="one")
    def one() -> int:
        return 1

    @side.task(name="two")
    def two() -> int:
        return 2

    def listen(sender: Any, **_: Any) -> None:
        seen.append(sender.name)
        raise RuntimeError("of the receiver")

    signals.task_prerun.connect(listen, sender=side.app.tasks["one"], weak=False)
    try:
        assert (side.get(one.delay()), side.get(two.delay())) == (1, 2)
        assert seen == ["one"]
    finally:
        signals.task_prerun.disconnect(listen, sender=side.app.tasks["one"])


def test_a_retry_sends_its_signal(side: Side) -> None:
    calls: Calls = []

    @side.task(name="work", autoretry_for=(OSError,), max_retries=1, retry_backoff=False)
    def work() -> None:
        raise OSError("busy")

    with receiving(side, calls):
        work.apply()
    assert ("retry", "work", 0) in calls
    assert ("failure", "work", "OSError('busy')", True) in calls


def test_worker_signals_are_sent_when_a_worker_starts_and_stops(sqlite_url: str) -> None:
    from holdfast_celery.signals import worker_ready, worker_shutdown

    app, seen = Celery("shop", url=sqlite_url), list[tuple[str, Any]]()
    kit = Kit(app, sqlite_url)
    ready = worker_ready.connect(lambda sender, **_: seen.append(("ready", sender)), weak=False)
    gone = worker_shutdown.connect(lambda sender, **_: seen.append(("gone", sender)), weak=False)
    try:
        kit.run_until_idle()
        wait_until(lambda: len(seen) == 2)
        assert sorted(seen) == [("gone", app), ("ready", app)]
    finally:
        worker_ready.disconnect(ready)
        worker_shutdown.disconnect(gone)
        kit.close()
        app.close()


def test_a_process_of_workers_begins_before_its_first_task(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_celery import signals

    monkeypatch.setattr(signals.first_task, "_process", None)
    app, seen = Celery("shop", url=sqlite_url), list[str]()

    @app.task(name="work")
    def work() -> None:
        seen.append("work")

    def begin(**_: Any) -> None:
        seen.append("begin")

    def end(**_: Any) -> None:
        seen.append("end")

    kit = Kit(app, sqlite_url)
    signals.worker_process_init.connect(begin)
    signals.worker_process_shutdown.connect(end)
    try:
        work.apply()
        work.delay()
        work.delay()
        kit.run_until_idle()
        wait_until(lambda: "end" in seen)
        assert seen == ["work", "begin", "work", "work", "end"]
    finally:
        signals.worker_process_init.disconnect(begin)
        signals.worker_process_shutdown.disconnect(end)
        kit.close()
        app.close()


def test_a_sync_middleware_runs_in_the_thread_of_the_task(sqlite_url: str) -> None:
    app, seen = Celery("shop", url=sqlite_url), list[tuple[str, int]]()

    @app.middleware
    def around(job: Any, next: Callable[[], Any]) -> Any:
        seen.append((job.type, threading.get_ident()))
        return next()

    @app.task(name="work")
    def work() -> None:
        seen.append(("run", threading.get_ident()))

    kit = Kit(app, sqlite_url)
    try:
        work.delay()
        kit.run_until_idle()
    finally:
        kit.close()
        app.close()
    assert [each[0] for each in seen] == ["work", "run"]
    assert seen[0][1] == seen[1][1] != threading.get_ident()


def test_an_error_that_is_not_the_task_s_sends_its_signal(side: Side) -> None:
    parent: Any = side.module().Task
    signal, seen = side.module("signals").task_internal_error, list[Any]()

    class Careless(parent):  # type: ignore[misc]
        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            raise RuntimeError("of the hook")

    @side.task(name="work", base=Careless)
    def work(a: int) -> int:
        return a

    def listen(sender: Any, task_id: str, args: Any, exception: Any, einfo: Any, **_: Any) -> None:
        seen.append(
            (sender.name, task_id, list(args), repr(exception), "of the hook" in str(einfo))
        )

    signal.connect(listen)
    try:
        result = work.delay(7)
        assert side.get(result) == 7
        wait_until(lambda: seen)
        assert seen == [("work", result.id, [7], "RuntimeError('of the hook')", True)]
        assert result.state == "SUCCESS"
    finally:
        signal.disconnect(listen)


def test_a_result_that_cannot_be_kept_sends_the_signal_of_internal_errors(sqlite_url: str) -> None:
    from holdfast_celery.signals import task_internal_error

    app, seen = Celery("shop", url=sqlite_url), list[tuple[str, str, bool]]()

    @app.task(name="work")
    def work() -> object:
        return object()

    def listen(sender: Any, task_id: str, exception: Exception, **_: Any) -> None:
        seen.append((sender.name, task_id, "arrive as something else" in str(exception)))

    kit = Kit(app, sqlite_url)
    task_internal_error.connect(listen)
    try:
        result = work.delay()
        kit.run_until_idle()
        assert (seen, result.state) == ([("work", result.id, True)], "FAILURE")
    finally:
        task_internal_error.disconnect(listen)
        kit.close()
        app.close()


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_an_attempt_that_has_run_too_long_is_not_told_of_as_if_it_counted(
    ending: str, sqlite_url: str
) -> None:
    from holdfast_celery import signals

    app, seen = Celery("shop", url=sqlite_url), list[str]()

    class Noting(Task):
        def on_success(self, *_: Any) -> None:
            seen.append("on_success")

        def on_failure(self, *_: Any) -> None:
            seen.append("on_failure")

    has_ended = threading.Event()

    @app.middleware
    def around(job: Any, next: Callable[[], Any]) -> Any:
        try:
            return next()
        finally:
            has_ended.set()

    @app.task(name="slow", base=Noting, bind=True, max_retries=0, time_limit=0.2)
    def slow(self: Any) -> None:
        wait_until(lambda: self.request.job.aborted)
        if ending == "raises":
            raise ValueError("too late")

    def listen(signal: Any, **_: Any) -> None:
        seen.append(signal.name)

    told = [
        getattr(signals, f"task_{name}")
        for name in ("success", "failure", "retry", "postrun", "internal_error")
    ]
    kit = Kit(app, sqlite_url)
    for each in told:
        each.connect(listen)
    try:
        result = slow.delay()
        for _ in range(3):
            kit.run_until_idle()
            kit.advance("10m")
        assert has_ended.wait(10)
        assert (result.status, type(result.result).__name__) == ("FAILURE", "TimeLimitExceeded")
        assert seen == []
    finally:
        for each in told:
            each.disconnect(listen)
        kit.close()
        app.close()


@pytest.mark.parametrize("package", ["celery", "holdfast_celery"])
def test_modules_are_imported_after_their_signal(package: str) -> None:
    celery, seen = import_module(package), list[Any]()
    app = celery.Celery("imports")

    def listen(sender: Any, **_: Any) -> None:
        seen.append(sender)

    signal = import_module(f"{package}.signals").import_modules
    signal.connect(listen, sender=app)
    try:
        app.loader.import_default_modules()
        assert seen == [app]
    finally:
        signal.disconnect(listen, sender=app)
        app.close()


def test_a_receiver_that_is_to_be_repeated_is_refused() -> None:
    from holdfast_celery.signals import task_prerun

    with pytest.raises(CeleryUnsupported, match=r"retry=True of task_prerun\.connect"):
        task_prerun.connect(print, retry=True)
    assert not task_prerun.has_listeners()


def test_a_signal_knows_whether_someone_listens_to_a_sender() -> None:
    from holdfast_celery.signals import task_prerun

    app = Celery("shop")
    work, other = app.task(name="work")(print), app.task(name="other")(print)

    def listen(**_: Any) -> None: ...

    task_prerun.connect(listen, sender=work)
    try:
        assert (task_prerun.has_listeners(work), task_prerun.has_listeners(other)) == (True, False)
    finally:
        task_prerun.disconnect(listen, sender=work)


REFUSED_SIGNALS = (
    *("after_task_publish", "task_rejected", "task_unknown"),
    *("celeryd_init", "celeryd_after_setup", "worker_before_create_process"),
    *("heartbeat_sent", "after_setup_logger", "after_setup_task_logger", "beat_init"),
    *("beat_embedded_init", "eventlet_pool_started", "eventlet_pool_preshutdown"),
    *("eventlet_pool_postshutdown", "eventlet_pool_apply", "task_sent", "user_preload_options"),
)


def test_each_signal_of_celery_is_sent_or_refused_with_what_to_do_instead() -> None:
    from holdfast_celery import signals

    celery = import_module("celery.signals")
    theirs = {name for name, each in vars(celery).items() if isinstance(each, celery.Signal)}
    ours = {name for name, each in vars(signals).items() if isinstance(each, signals.TaskSignal)}
    assert theirs == ours | set(REFUSED_SIGNALS)
    for name in REFUSED_SIGNALS:
        with pytest.raises(CeleryUnsupported, match=f"import {name} is not covered") as refused:
            getattr(signals, name)
        assert refused.value.help
