"""The errors of the look-alikes, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import CommandError, InputInvalid, InvalidOption


class CeleryUnsupported(InvalidOption, code="HF079"):
    """This part of Celery is not covered by holdfast_celery.

    It accepts only what has an effect. Ignoring the rest would silently change what your tasks do.
    """

    fix = "run `holdfast migrate-from celery PROJECT`; it prints what to write instead"


class ArgumentsInvalid(InputInvalid, TypeError, code="HF200"):
    """A task was called with arguments that its function does not take.

    Arguments are checked where the task is started, as Celery does with `typing=True`, so that no worker fails on them.
    """

    fix = "pass the arguments that the task's function takes"


class NotCommitted(CommandError, code="HF210", exit_code=4):
    """The project has changes that are not committed, or is in no git repository.

    `holdfast migrate-from celery --write` edits your files. It does so only where `git diff` then shows these edits and
    nothing else, and `git restore` takes them back. Nothing was written.
    """

    fix = "commit or stash what you have changed, or repeat it with --force"
