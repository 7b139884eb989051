"""Queues: a task in one is a job type of its own, `mail:shop.tasks.send`, as with Django's tasks.

In the default queue the type has the name of the task. So `--types 'mail:*'` makes a worker of a queue, and every queue
has to be known to the application: workers register their types before jobs come.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from holdfast.core.errors import InvalidOption
from holdfast.core.registry import is_name
from holdfast_celery.coverage import check_names
from holdfast_celery.errors import CeleryUnsupported

DEFAULT_QUEUE = "celery"
"""Celery's name for it."""

Router: TypeAlias = Callable[..., Any]
PatternRoute: TypeAlias = tuple[str | re.Pattern[str], Any]


def type_name(task: str, queue: str | None) -> str:
    """Return the job type of a task in a queue; None and "" are the default one."""
    return f"{queue}:{task}" if queue else task


def check_queue(queue: object) -> str:
    """Return the name of a queue, given by itself or as a Queue of kombu's. Raises: InvalidOption."""
    name = getattr(queue, "name", queue)
    if not isinstance(name, str) or ":" in name or not is_name(f"{name}:x"):
        raise InvalidOption(
            f"queue {repr(name)[:60]} cannot be part of a job type's name",
            help="use letters, digits, dots, dashes and underscores",
        )
    return name


def read_queues(setting: Any) -> list[str]:
    """Return the names of task_queues: a list of names or Queues, or a mapping by name. Raises: InvalidOption."""
    return [check_queue(each) for each in setting or ()]


class Routes:
    """The setting task_routes: which queue a task is started in, unless its decorator or the call says so."""

    def __init__(self, setting: Any) -> None:
        """Take a mapping, a router, or a list of these and of pairs. Raises: CeleryUnsupported, InvalidOption."""
        self._parts: list[PatternRoute | Router] = list(_parts(setting))
        self.queues = {
            _queue_of(each[1], f"task_routes of {each[0]}")
            for each in self._parts
            if isinstance(each, tuple)
        } - {None}

    def find(
        self, task: str, args: Iterable[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> str | None:
        """Return the queue of a call. Raises: CeleryUnsupported, and what a router raises."""
        for part in self._parts:
            if isinstance(part, tuple):
                if _matches(part[0], task):
                    return _queue_of(part[1], f"task_routes of {part[0]}")
                continue
            found = part(task, list(args), dict(kwargs), dict(options), task=None)
            if found is not None:
                return _queue_of(found, "a router of task_routes")
        return None


def _parts(setting: Any) -> Iterator[PatternRoute | Router]:
    if setting is None:
        return
    if isinstance(setting, Mapping):
        yield from _names_first(setting.items())
    elif callable(setting):
        yield setting
    elif isinstance(setting, str):
        raise CeleryUnsupported(
            f"task_routes has a router by its name {setting[:60]!r}",
            help="pass the function itself",
        )
    elif _is_pair(setting):
        yield (setting[0], setting[1])
    elif all(map(_is_pair, setting)):
        yield from _names_first(setting)
    else:
        for each in setting:
            yield from _parts(each)


def _is_pair(setting: Any) -> bool:
    is_pair = isinstance(setting, tuple) and len(setting) == 2
    return is_pair and isinstance(setting[0], str | re.Pattern)


def _names_first(routes: Iterable[PatternRoute]) -> list[PatternRoute]:
    """Return the routes of a mapping as Celery looks at them: a task's own name counts before every pattern."""
    return sorted(routes, key=lambda route: _is_pattern(route[0]))


def _is_pattern(name: str | re.Pattern[str]) -> bool:
    """Whether it is a pattern to Celery: a question mark or brackets alone make none."""
    return isinstance(name, re.Pattern) or "*" in name


def _matches(pattern: str | re.Pattern[str], task: str) -> bool:
    if isinstance(pattern, re.Pattern):
        return pattern.match(task) is not None
    return fnmatch.fnmatchcase(task, pattern) if _is_pattern(pattern) else task == pattern


def _queue_of(route: Any, where: str) -> str | None:
    if isinstance(route, Mapping):
        check_names("route option", route, where)
        route = route.get("queue")
    return None if route is None else check_queue(route)
