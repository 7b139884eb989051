"""The errors of costs, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import InputInvalid, InvalidOption


class CostInvalid(InputInvalid, code="HF204"):
    """A job does not say what it costs, but limits of its type count costs.

    `cost=` names a field of the input, or is a function of it. It is read once, when the job is started, and is a whole
    number from 0 on.
    """

    fix = "let cost= name a field with a whole number, or return one; 0 is free"


class CostTooLarge(InputInvalid, code="HF205"):
    """A job costs more than a limit or rate of its type ever lets through.

    It would wait forever, and with it every job of its key behind it.
    """

    fix = "split the job, or raise the limit"


class CostConflict(InvalidOption, code="HF209"):
    """What was spent cannot be settled.

    `job.spent` puts what an attempt spent in the place of what its job was to cost. That is a whole number from 0 on,
    and there must be a rate that counts costs.
    """

    fix = "declare Rate(…, cost=…) for the job's type, and give a whole number"
