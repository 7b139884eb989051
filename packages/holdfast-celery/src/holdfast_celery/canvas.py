"""Signatures, chains, groups and chords: read into steps, then started in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast.client.start_plan import Start
from holdfast.client.views import Chain
from holdfast.core.errors import InvalidOption
from holdfast_celery.calls import (
    COLLECT,
    MAP,
    STARMAP,
    CallOptions,
    FailedCall,
    GroupStep,
    Step,
    Steps,
    TaskStep,
    input_of,
    read_options,
    start_of,
    tag_arguments,
)
from holdfast_celery.coverage import refuse, refuse_attributes, refuse_import
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.messages import send_before_publish
from holdfast_celery.result import AsyncResult, GroupResult
from holdfast_celery.scope import current_celery, transaction_of

if TYPE_CHECKING:
    from holdfast_celery.application import Celery
    from holdfast_celery.tasks import CeleryTask


NO_LINKS: Mapping[str, Any] = MappingProxyType({})


class Signature:
    """Something that can be started: one task, or several that depend on each other."""

    app: Celery | None = None
    options: dict[str, Any]

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("signature attribute")

    def steps(self, app: Celery, over: Mapping[str, Any] = NO_LINKS) -> Steps:
        """Return what runs, in order; links in `over` replace its own. Raises: UnknownJobType, CeleryUnsupported."""
        raise NotImplementedError

    def link(self, callback: Any) -> Any:
        """Start a canvas with the result once this has completed; of a chain, its last task. Return the canvas."""
        return self._add_link("link", callback)

    def link_error(self, errback: Any) -> Any:
        """Start a canvas once this has failed; of a chain, any of its tasks. Return the canvas."""
        return self._add_link("link_error", errback)

    def on_error(self, errback: Any) -> Self:
        """Do as `link_error`, and return the signature itself."""
        self.link_error(errback)
        return self

    def _add_link(self, option: str, canvas: Any) -> Any:
        known = _canvas_list(self.options.get(option))
        if canvas not in known:
            self.options[option] = [*known, _canvas_of(canvas)]
        return canvas

    def _with_links(self, app: Celery, steps: Steps, over: Mapping[str, Any]) -> Steps:
        """Give the steps what is linked to them."""
        link, link_error = (
            tuple(each.steps(app) for each in _canvas_list({**self.options, **over}.get(name)))
            for name in ("link", "link_error")
        )
        return add_links(steps, link, link_error) if link or link_error else steps

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Start it; arguments go before those of its first task."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Start it; arguments and options are those of its first task, or of each in its first group.

        Raises: CeleryUnsupported, UnknownJobType, InvalidOption, PayloadNotEncodable.
        """
        app, steps = self._begun_with(tuple(args or ()), kwargs or {}, options)
        if app.conf.task_always_eager:
            return self._apply(app, steps, None)
        steps = send_before_publish(app, steps)
        with transaction_of(app) as tx:
            return _result(app, steps, start_steps(app, tx, steps))

    def apply(
        self,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        throw: bool | None = None,
        **options: Any,
    ) -> Any:
        """Run it in this process, one task after another; see `apply_async` for the arguments.

        Raises: what a task raises before the last one, and with `throw` that one, too.
        """
        app, steps = self._begun_with(tuple(args or ()), kwargs or {}, options)
        return self._apply(app, steps, throw)

    def _apply(self, app: Celery, steps: Steps, throw: bool | None) -> Any:
        from holdfast_celery.eager import apply_steps

        propagates = app.conf.task_eager_propagates if throw is None else throw
        return apply_steps(app, steps, propagates)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start it, as Celery does with a canvas."""
        return self.apply_async(args, kwargs)

    def __or__(self, other: object) -> Signature:
        """Return a chain of both."""
        return TaskChain((self, _canvas_of(other)))

    def __invert__(self) -> Any:
        """Start it and wait for its result: `~task.s(2, 2)`. Raises: what `get` raises."""
        return self.apply_async().get()

    def _begun_with(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Celery, Steps]:
        app = self.app or current_celery()
        over = app.read_call_options(options, "apply_async")
        links = {name: options[name] for name in ("link", "link_error") if name in options}
        first, *rest = self.steps(app, links)
        return app, (_begun(first, args, kwargs, over), *rest)


class TaskSignature(Signature):
    """A task with some of its arguments and its options, to be started later."""

    def __init__(
        self,
        task: str,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: Celery | None = None,
    ) -> None:
        read_options(options or {}, f"the signature of {task}")
        self.task = task
        self.args = tuple(args or ())
        self.kwargs = dict(kwargs or {})
        self.options = dict(options or {})
        self.immutable = immutable
        self.app = app

    @property
    def name(self) -> str:
        """The task's name, the same as `task`."""
        return self.task

    @property
    def type(self) -> CeleryTask:
        """The task itself. Raises: UnknownJobType."""
        return (self.app or current_celery()).task_of(self.task)

    def set(self, immutable: bool | None = None, **options: Any) -> Self:
        """Change options, and return the signature. Raises: CeleryUnsupported."""
        read_options(options, f"the signature of {self.task}")
        self.options = self.options | options
        if immutable is not None:
            self.immutable = immutable
        return self

    def clone(self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Self:
        """Return a copy; more arguments go before its own."""
        merged = self.args if self.immutable else (*args, *self.args)
        keywords = self.kwargs if self.immutable else self.kwargs | dict(kwargs or {})
        return type(self)(
            self.task, merged, keywords, self.options, immutable=self.immutable, app=self.app
        )

    def apply_async(
        self,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Start it, by the task's own `apply_async` where its base class has one. Raises: as `Signature`'s."""
        app = self.app or current_celery()
        task = app.tasks.get(self.task)
        if task is None or not task.overrides("apply_async"):
            return super().apply_async(args, kwargs, **options)
        full = self.clone(args or (), kwargs)
        return task.apply_async(full.args, full.kwargs, **(self.options | options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task in this process."""
        app = self.app or current_celery()
        full = self.clone(args, kwargs)
        return app.task_of(self.task)(*full.args, **full.kwargs)

    def steps(self, app: Celery, over: Mapping[str, Any] = NO_LINKS) -> Steps:
        """Return the one step."""
        args, kwargs = tag_arguments(self.args, self.kwargs, self.task)
        defaults = app.default_options(self.task, self.args, self.kwargs, self.options)
        own = app.read_call_options(self.options, f"the signature of {self.task}")
        step = TaskStep(self.task, args, kwargs, self.immutable, defaults.merge(own))
        found = self._with_links(app, (step,), over)
        if found[0] is not step or self.task in (MAP, STARMAP):
            _check_sealed(app, found)
        return found

    def __repr__(self) -> str:
        """Show the task and its arguments."""
        given = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        return f"{self.task}({', '.join(given)})"


class TaskChain(Signature):
    """Tasks that run one after another, each with the result of the one before."""

    def __init__(self, parts: Iterable[Signature]) -> None:
        self.parts = tuple(parts)
        self.options = {}
        self.app = _app_of(self.parts)
        if not self.parts:
            raise InvalidOption("a chain needs a task")

    @property
    def tasks(self) -> tuple[Signature, ...]:
        """Its parts."""
        return self.parts

    def steps(self, app: Celery, over: Mapping[str, Any] = NO_LINKS) -> Steps:
        """Return the steps of all parts; one after another."""
        found = tuple(step for each in self.parts for step in _unroll(each).steps(app))
        for step in found[1:]:
            _check_later(step)
        found = self._with_links(app, found, over)
        _check_sealed(app, found)
        return found

    def __repr__(self) -> str:
        """Show its parts."""
        return " | ".join(map(repr, self.parts))


class TaskGroup(Signature):
    """Tasks that run at the same time."""

    def __init__(self, members: Iterable[Signature]) -> None:
        self.members = tuple(members)
        self.options = {}
        self.app = _app_of(self.members)

    def steps(self, app: Celery, over: Mapping[str, Any] = NO_LINKS) -> Steps:
        """Return the one step, with the steps of each member."""
        found = (GroupStep(tuple(each.steps(app) for each in self._flat())),)
        return self._with_links(app, found, over)

    @property
    def tasks(self) -> tuple[Signature, ...]:
        """Its members."""
        return self.members

    def __or__(self, other: object) -> Signature:
        """Return a chord: the task takes the list of results."""
        return TaskChord(self, _canvas_of(other))

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> Self:
        """Give each member a countdown: `start`, and `step` more for each, up to `stop`; return the group."""
        countdown = start
        for each in self._flat():
            if not isinstance(each, TaskSignature):
                raise refuse("signature attribute", "set", "a canvas in a group")
            # As in Celery, where 0 is no end either.
            is_beyond = bool(stop) and countdown > (stop or 0)
            each.set(countdown=countdown - step if is_beyond else countdown)
            if not is_beyond:
                countdown += step
        return self

    def apply_async(
        self,
        args: Iterable[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> GroupResult:
        """Start all of them in one transaction. Raises: see `Signature.apply_async`."""
        app, steps = self._begun_with(tuple(args or ()), kwargs or {}, options)
        if app.conf.task_always_eager:
            made: GroupResult = self._apply(app, steps, None)
            return made
        assert isinstance(steps[0], GroupStep)
        members = [send_before_publish(app, each) for each in steps[0].members]
        with transaction_of(app) as tx:
            chains = start_members(app, tx, members)
        return GroupResult(list(map(partial(_result, app), members, chains)), app=app)

    def __len__(self) -> int:
        """Count the members."""
        return len(self.members)

    def __repr__(self) -> str:
        """Show its members."""
        return f"group({self.members!r})"

    def _flat(self) -> Iterator[Signature]:
        for each in self.members:
            if isinstance(each, TaskGroup):
                yield from each._flat()
            else:
                yield each


class TaskChunks(TaskGroup):
    """A group of tasks, each of which calls another task for some of the items."""

    def group(self) -> TaskGroup:
        """Return the group alone."""
        return TaskGroup(self.members)


class TaskChord(Signature):
    """A group, and a task that runs once with the list of its results."""

    def __init__(self, header: TaskGroup, body: Signature | None) -> None:
        self.header = header
        self.body = body
        self.options = {}
        self.app = header.app or (body.app if body is not None else None)

    def __call__(self, body: object = None, **options: Any) -> Any:
        """Start the header, and the given body after it."""
        chosen = TaskChord(self.header, self.body if body is None else _canvas_of(body))
        chosen.options = self.options
        return chosen.apply_async(**options)

    def steps(self, app: Celery, over: Mapping[str, Any] = NO_LINKS) -> Steps:
        """Return the steps of the header, then those of the body."""
        if self.body is None:
            raise InvalidOption("the chord has no body", help="write chord(header)(body)")
        # Also of one member: the body takes a list.
        found = (*self.header.steps(app), *self.body.steps(app))
        for step in found[1:]:
            _check_later(step)
        _check_sealed(app, found)
        return self._with_links(app, found, over)

    def __repr__(self) -> str:
        """Show its header and body."""
        return f"%{self.body!r}({list(self.header.members)!r})"


def signature(
    task: Any,
    args: Iterable[Any] | None = (),
    kwargs: Mapping[str, Any] | None = None,
    app: Celery | None = None,
    **options: Any,
) -> TaskSignature:
    """Return the signature of a task, given by itself or by its name. Raises: CeleryUnsupported."""
    immutable = bool(options.pop("immutable", False))
    if isinstance(task, str):
        return TaskSignature(task, args, kwargs, options, immutable=immutable, app=app)
    made: TaskSignature = task.signature(args, kwargs, **options)
    return made.set(immutable=immutable)


def chain(*tasks: Any) -> TaskChain:
    """Return a chain of these signatures, or of those in one list."""
    return TaskChain(_canvases(tasks))


def group(*tasks: Any) -> TaskGroup:
    """Return a group of these signatures, or of those in one iterable."""
    return TaskGroup(_canvases(tasks))


def chord(header: Any, body: object = None) -> TaskChord:
    """Return a chord: the body runs once, with the results of the header in their order."""
    members = header if isinstance(header, TaskGroup) else TaskGroup(_canvases((header,)))
    return TaskChord(members, None if body is None else _canvas_of(body))


def map_items(task: str, items: Iterable[Any], app: Celery | None) -> TaskSignature:
    """Return the signature of a task that calls another for each item."""
    return TaskSignature(MAP, (), {"task": task, "it": list(items)}, app=app)


def starmap_items(task: str, items: Iterable[Iterable[Any]], app: Celery | None) -> TaskSignature:
    """Return the signature of a task that calls another with the arguments in each item."""
    return TaskSignature(STARMAP, (), {"task": task, "it": [[*each] for each in items]}, app=app)


def start_steps(app: Celery, tx: Any, steps: Steps, given: Sequence[Any] = ()) -> Chain:
    """Start a canvas and return the chain whose output is its result; what it is given is tagged."""
    first, *rest = steps
    if isinstance(first, TaskStep):
        return _start(app, tx, start_of(first, input_of(first, given, tuple(rest))))
    body, then = after_group(rest)
    members = start_members(app, tx, first.members, given)
    call = input_of(body, (), then, collect=True)
    return _start(app, tx, start_of(body, call, blockers=members))


def start_errback(app: Celery, tx: Any, steps: Steps, failed: FailedCall) -> None:
    """Start what is to be started after a failure; its first task learns of that, unless it is immutable."""
    first, *rest = steps
    if isinstance(first, GroupStep):
        for each in first.members:
            start_errback(app, tx, (*each, *rest), failed)
        return
    call = input_of(first, (), tuple(rest))
    if not first.immutable:
        call = msgspec.structs.replace(call, failed=failed)
    _start(app, tx, start_of(first, call))


def add_links(steps: Steps, link: tuple[Steps, ...], link_error: tuple[Steps, ...]) -> Steps:
    """Link canvases to the last of some steps, and those for errors to all that report one of their own.

    A group hands them on to its members: the first starts the former, without a result, and each that fails the latter.
    A group before a task does not: a failed member fails that task.
    """
    found: list[Step] = []
    for place, step in enumerate(steps):
        is_last = place == len(steps) - 1
        own = link if is_last else ()
        if isinstance(step, TaskStep):
            found.append(
                msgspec.structs.replace(
                    step, link=(*step.link, *own), link_error=(*step.link_error, *link_error)
                )
            )
        elif is_last or isinstance(steps[place + 1], GroupStep):
            links = [tuple(map(_immutable, own)), *[()] * (len(step.members) - 1)]
            members = zip(step.members, links, strict=False)
            found.append(
                GroupStep(tuple(add_links(each, own, link_error) for each, own in members))
            )
        else:
            found.append(step)
    return tuple(found)


def _immutable(steps: Steps) -> Steps:
    """Return a canvas whose first task takes nothing from what it is linked to."""
    first, *rest = steps
    if isinstance(first, GroupStep):
        return (GroupStep(tuple(map(_immutable, first.members))), *rest)
    return (msgspec.structs.replace(first, immutable=True), *rest)


def _result(app: Celery, steps: Steps, started: Chain) -> AsyncResult:
    """Return the result of a canvas that was started, by the id that was chosen for it or that of its chain."""
    first = steps[0]
    chosen = first.options.task_id if isinstance(first, TaskStep) else None
    shape, is_group = _jobs_of(steps), isinstance(steps[-1], GroupStep)
    return AsyncResult(chosen or started.id, app, started.id, takes_group=shape, is_group=is_group)


def _jobs_of(steps: Steps) -> tuple[bool, ...]:
    """Return for each job of a canvas whether it takes the results of a group: with a group it is one job."""
    found: list[bool] = []
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        found.append(isinstance(step, GroupStep))
        if found[-1] and rest and isinstance(rest[0], TaskStep):
            rest.pop(0)
    return tuple(found)


def _start(app: Celery, tx: Any, start: Start) -> Chain:
    started: list[Chain] = app.start_all(tx, [start])
    return started[0]


def start_members(
    app: Celery, tx: Any, members: Sequence[Steps], given: Sequence[Any] = ()
) -> list[Chain]:
    """Start the members of a group: in one statement, but for those that begin with a group themselves."""
    starts, found = [], {}
    for place, steps in enumerate(members):
        first, *rest = steps
        if isinstance(first, TaskStep):
            starts.append((place, start_of(first, input_of(first, given, tuple(rest)))))
        else:
            found[place] = start_steps(app, tx, steps, given)
    begun = app.start_all(tx, [each for _, each in starts]) if starts else []
    found |= {place: each for (place, _), each in zip(starts, begun, strict=True)}
    return [found[place] for place in range(len(members))]


def after_group(rest: Sequence[Step]) -> tuple[TaskStep, Steps]:
    """Return the task that takes a group's results, and what follows it."""
    if rest and isinstance(rest[0], TaskStep):
        return rest[0], tuple(rest[1:])
    return TaskStep(COLLECT), tuple(rest)


def _begun(step: Step, args: tuple[Any, ...], kwargs: Mapping[str, Any], over: CallOptions) -> Step:
    """Give a first step its arguments and options."""
    if isinstance(step, GroupStep):
        if over.task_id is not None:
            raise CeleryUnsupported(
                "a group cannot have a task_id",
                help="set one for each member: task.s(…).set(task_id=…)",
            )
        return GroupStep(
            tuple((_begun(each[0], args, kwargs, over), *each[1:]) for each in step.members)
        )
    options = step.options.merge(over)
    if step.immutable:
        return msgspec.structs.replace(step, options=options)
    first, named = tag_arguments(args, kwargs, step.task)
    return msgspec.structs.replace(
        step, args=(*first, *step.args), kwargs=step.kwargs | named, options=options
    )


def _check_later(step: Step) -> None:
    if isinstance(step, TaskStep) and step.options.task_id is not None:
        raise CeleryUnsupported(
            f"task_id of {step.task}, which is not the first of its chain, is not covered",
            help="give it to the first task: the chain has one id",
        )


def _check_sealed(app: Celery, steps: Steps) -> None:
    """Refuse a chain that is sealed in part: each job carries the arguments of the next. Raises: InvalidOption."""
    names = dict.fromkeys(_task_names(steps))
    sealed = [name for name in names if app.registry.get(name).sealed]
    if not sealed:
        return
    if in_clear := [name for name in names if name not in sealed]:
        raise InvalidOption(
            f"{sealed[0]} is sealed, and {in_clear[0]} of the same canvas is not",
            help="give sealed=True to all tasks of a canvas or to none: each carries what follows it",
        )
    if any(isinstance(a, GroupStep) and isinstance(b, GroupStep) for a, b in pairwise(steps)):
        raise InvalidOption(
            f"{sealed[0]} is sealed, and a group follows a group",
            help="put a sealed task between them, which takes the results of the first",
        )


def _task_names(steps: Steps) -> Iterator[str]:
    for step in steps:
        if isinstance(step, TaskStep):
            yield step.task
            if step.task in (MAP, STARMAP):
                yield step.kwargs["task"]
            inner = (*step.link, *step.link_error)
        else:
            inner = step.members
        for each in inner:
            yield from _task_names(each)


def _canvases(given: tuple[Any, ...]) -> Iterator[Signature]:
    if len(given) == 1 and not isinstance(given[0], Signature) and isinstance(given[0], Iterable):
        return map(_canvas_of, given[0])
    return map(_canvas_of, given)


def _unroll(part: Signature) -> Signature:
    """Return the only member of a group within a chain, which then hands on its result and no list, as in Celery."""
    if type(part) is TaskGroup and len(part) == 1 and not part.options:
        return _unroll(part.members[0])
    return part


def _canvas_list(given: Any) -> list[Signature]:
    """Return what an option such as `link` has: nothing, a canvas, or several."""
    if given is None:
        return []
    return [_canvas_of(each) for each in (given if isinstance(given, list | tuple) else [given])]


def _canvas_of(given: object) -> Signature:
    if isinstance(given, Signature):
        return given
    if type(given).__module__.startswith("celery."):
        raise CeleryUnsupported(
            f"{repr(given)[:60]} is a Celery signature, but Celery's workers never see this canvas",
            help="move the tasks of one canvas together",
        )
    raise (
        refuse("import", "subtask")
        if isinstance(given, dict)
        else InvalidOption(f"{repr(given)[:60]} is not a signature", help="write task.s(…)")
    )


def _app_of(parts: Iterable[Signature]) -> Celery | None:
    return next((each.app for each in parts if each.app is not None), None)


def __getattr__(name: str) -> Any:
    """Refuse what else Celery has here, with what to write instead."""
    raise refuse_import(__name__, name)
