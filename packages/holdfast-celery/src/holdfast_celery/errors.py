"""The error of the look-alikes."""

from __future__ import annotations

from holdfast.core.errors import InvalidOption


class CeleryUnsupported(InvalidOption, code="HF079"):
    """This part of Celery is not covered by holdfast_celery.

    It accepts only what has an effect. Ignoring the rest would silently change what your tasks do.
    """

    fix = "run `holdfast migrate-from celery PROJECT`; it prints what to write instead"
