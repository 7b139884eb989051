"""Cycles that start one job per tenant: a slot starts one for each of them, however often its run is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.client.start_plan import Start
from holdfast.core.errors import InvalidOption
from holdfast.core.job_context import encode_context
from holdfast.core.registry import Target

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.scheduler.cycle_run import CycleRun

Values: TypeAlias = Iterable[str] | Callable[[], Iterable[str]]

START_AT_ONCE = 500
"""So many jobs are started in one transaction."""


def start_per_value(
    app: Holdfast, run: CycleRun, target: Target, input: Any, name: str, per: Values
) -> int:
    """Start a job of a slot for each value, in a context with it; return how many there are.

    The key is that of the slot and the value, and outlives its job: a run that is repeated starts what is missing.
    Raises: ContextInvalid.
    """
    values = list(dict.fromkeys(per() if callable(per) else per))
    for each in values:
        encode_context({name: each})
    for begin in range(0, len(values), START_AT_ONCE):
        run.checkpoint()
        starts = [
            Start(target, input, key=f"{run.key}:{each}", scope="any", context={name: each})
            for each in values[begin : begin + START_AT_ONCE]
        ]
        with app.transaction() as tx:
            app.start_all(tx, starts)
    return len(values)


def check_per(per: object) -> None:
    """Refuse what gives no values. Raises: InvalidOption."""
    if isinstance(per, str) or not (callable(per) or isinstance(per, Iterable)):
        raise InvalidOption(
            f"per={repr(per)[:60]} is neither a list nor a function that returns one",
            help='write per=["acme", "globex"], or the function that reads them',
        )
