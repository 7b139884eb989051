"""Principals that are confined to one value of the context, such as one tenant: all they read and change is cut to it.

There is one place for it, below everything that asks: each statement of an operation is looked up, and run as its cut
says. A statement without one is refused, so that what is added later shows nothing until its author has thought about
it. A job's context never changes, so what was within it when it was looked at still is when it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.core.errors import FilterError, Refused
from holdfast.core.filters import CONTEXT, Term, format_filter, parse_filter
from holdfast.core.job_context import encode_context
from holdfast.storage.operation import Op, Row, Statement, Value
from holdfast.storage.store.params import texts
from holdfast_context.cuts import Cut, all_cuts
from holdfast_context.errors import ConfinementInvalid

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.start_options import StartOptions

T = TypeVar("T")

_KEYS = ("key", "scope", "window", "debounce", "latest")

cuts = cache(all_cuts)


def only(name: str, value: str) -> str:
    """Return what a principal is confined to, for `Principal(…, only=…)`. Raises: ContextInvalid."""
    encode_context({name: value})
    return format_filter([Term(f"{CONTEXT}{name}", ":", (value,))])


class ContextConfinement:
    """Confines operations to the jobs that were started with one value of the context."""

    def __init__(self, text: str) -> None:
        """Raises: ConfinementInvalid."""
        try:
            (term,) = parse_filter(text)
            (value,) = term.values
        except (FilterError, ValueError):
            raise ConfinementInvalid(f"{text[:100]!r} is not one term with one value") from None
        if not term.field.startswith(CONTEXT):
            raise ConfinementInvalid(f"{term.field} is not part of the context")
        self._name, self._value = term.field.removeprefix(CONTEXT), str(value)
        self._text = text

    @property
    def prefix(self) -> str:
        """What the names begin with that it gives where names are shared: no two contexts have the same."""
        value = self._value.replace("%", "%25").replace(":", "%3A")
        return f"{self._name}:{value}:"

    def check(self, app: Holdfast) -> None:
        """Refuse a name that an application does not declare. Raises: ConfinementInvalid."""
        names = app.targets.context_names
        if names is not None and self._name not in names:
            raise ConfinementInvalid(
                f"the context has no {self._name}", help=f"use one of {', '.join(names)}"
            )

    def cut_start(self, app: Holdfast, options: StartOptions) -> StartOptions:
        """Return the options of a start in the context.

        Keys are shared by all tenants: one that is taken would tell of another's job. Raises: Refused.
        """
        for name in _KEYS:
            if options.get(name) is not None:
                raise Refused(
                    f"a start that is confined to {self._text} cannot have {name}",
                    rule="keys are shared by all contexts",
                )
        context = options.get("context") or {}
        return {**options, "context": {**context, self._name: self._value}}

    def cut(self, op: Op[T]) -> Op[T]:
        """Run an operation on what is within the context. Raises: Refused for a statement that is not cut."""
        known: dict[str, bool] = {}
        try:
            statement = next(op)
            while True:
                try:
                    rows = yield from self._run(statement, known)
                except Exception as error:
                    statement = op.throw(error)
                else:
                    statement = op.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result

    def _run(self, statement: Statement, known: dict[str, bool]) -> Op[list[Row]]:
        cut = cuts().get(statement.name)
        if cut is None or statement.call is not None:
            raise Refused(
                f"this cannot be confined to {self._text}",
                rule=f"the statement {statement.name} covers more",
            )
        if cut.answer is not None:
            return list(cut.answer)
        params = yield from self._narrow(cut, statement, known)
        if params is None:
            return []
        found = yield Statement(cut.instead or statement.name, params)
        if cut.columns:
            yield from self._look_up([row[each] for row in found for each in cut.columns], known)
            found = [row for row in found if all(known[row[each]] for each in cut.columns)]
        if cut.blank:
            found = [tuple(cut.blank.get(at, it) for at, it in enumerate(row)) for row in found]
        return found

    def _narrow(
        self, cut: Cut, statement: Statement, known: dict[str, bool]
    ) -> Op[dict[str, Value] | None]:
        """Return a statement's parameters without what others have; None if nothing is left to ask for."""
        params = dict(statement.params)
        if cut.ids:
            wanted = msgspec.json.decode(str(params[cut.ids]), type=list[str])
            yield from self._look_up(wanted, known)
            params[cut.ids] = texts(each for each in wanted if known[each])
        if cut.id:
            one = str(params[cut.id])
            yield from self._look_up([one], known)
            if not known[one]:
                return None
        if cut.filtered:
            given = msgspec.json.decode(str(params["context"] or "{}"), type=dict[str, str])
            if given.setdefault(self._name, self._value) != self._value:
                return None
            params["context"] = encode_context(given)
        if cut.instead:
            params |= {"context_name": self._name, "context_value": self._value}
        return params

    def _look_up(self, ids: Iterable[str], known: dict[str, bool]) -> Op[None]:
        """Find out which jobs, or chains by their first one, are within the context."""
        new = [each for each in ids if each not in known]
        if not new:
            return
        given = {"context_name": self._name, "context_value": self._value, "ids": texts(new)}
        within = {row[0] for row in (yield Statement("context_within", given))}
        known |= {each: each in within for each in new}
