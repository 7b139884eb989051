"""The errors of output, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class OutputError(HoldfastError):
    """Something about what handlers emit."""


class OutputFull(OutputError, code="HF206"):
    """An attempt emitted more than is kept.

    What an attempt emits is bounded by `max_items` and `max_bytes`. Dropping the oldest would leave readers with a gap
    that none of them could see, so what goes beyond the bound is refused instead.
    """

    fix = "emit less, or raise max_items= or max_bytes= of add_output"


class EmitTooLate(OutputError, code="HF207"):
    """Something was emitted after its attempt had ended.

    What an attempt emits is written before its outcome is. A thread or a task that goes on after the handler has
    returned, or after `job.complete(tx=…)`, belongs to no attempt any more.
    """

    fix = "await or join what emits before the handler returns"


class OutputPositionInvalid(OutputError, code="HF208", http_status=422, exit_code=2):
    """This is no position in a chain's output.

    A position is the id of an item: a whole number from 0 on, which readers get with every item and send back as
    `after` or `Last-Event-ID`.
    """

    fix = "use the id of the last item that was read, or 0 for all of it"
