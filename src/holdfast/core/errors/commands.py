"""HF09x: what the command line cannot understand, load or do unasked."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class CommandError(HoldfastError):
    """A command was not carried out."""


class CommandUsage(CommandError):
    """The command line cannot be understood.

    A command, option or argument does not exist, is missing, or has a value of the wrong form.
    Nothing was done.
    """

    code = "HF091"
    fix = "see the command's `--help`, which begins with examples"


class AppNotLoaded(CommandError):
    """The application cannot be loaded.

    Commands that run handlers take the application as `module:attribute`, import the module with the
    current directory on the path, and expect a Holdfast object under that name.
    """

    code = "HF092"
    fix = "name it like `shop.jobs:app`, from the directory in which `import shop.jobs` works"


class NotConfirmed(CommandError):
    """The change was not confirmed.

    A change of everything that a filter finds shows its count and a sample first, and is made only
    when that was confirmed. Nothing was changed.
    """

    code = "HF093"
    fix = "repeat it with --yes, or look first with --dry-run"


class CheckNotMet(CommandError):
    """A checked condition does not hold.

    `holdfast status --fail-if` compares figures of the queue with limits, so that monitors and
    pipelines can act on its exit code.
    """

    code = "HF094"
    fix = "see `holdfast status` for the whole picture"


class SystemRefused(CommandError):
    """The operating system refused what a command needs.

    A disk may be full, a folder may not be writable, or a file may have been taken away meanwhile.
    """

    code = "HF099"
    fix = "mend what the message names, then repeat the command"
