"""What a start can be told from outside Python: the table that HTTP, the command line and the dashboard's form follow.

`client.start_options` says the same to type checkers, with the options that only Python has; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

OptionKind = Literal["text", "duration", "time", "number", "flag", "choice", "pairs"]


class StartOption(NamedTuple):
    """One option: how its value is written, and a sentence about it."""

    kind: OptionKind
    text: str
    lowest: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    word: str = ""
    """Its label in the form; without one the form does not have it."""


START_OPTIONS: Mapping[str, StartOption] = {
    "key": StartOption(
        "text",
        "Deduplicates: an open chain with the same type and key is returned instead.",
        word="Key",
    ),
    "scope": StartOption(
        "choice",
        "How long the key deduplicates: while its chain is open, or beyond.",
        choices=("open", "any"),
    ),
    "window": StartOption("duration", "How long the key deduplicates, at most."),
    "debounce": StartOption(
        "duration", "Start once the key has been quiet for this long, with the last input."
    ),
    "latest": StartOption("duration", "With debounce: start no later than this."),
    "after": StartOption("duration", "Delay before the job is due, such as 10m.", word="Delay"),
    "at": StartOption("time", "Earliest start time, with a time zone."),
    "expires": StartOption(
        "duration", "Cancel the job if no attempt has begun within this long.", word="Expires after"
    ),
    "priority": StartOption("number", "0 (most urgent) to 9; 5 by default.", 0, 9, word="Priority"),
    "max_attempts": StartOption(
        "number", "Maximum attempts, including the first.", 1, word="Maximum attempts"
    ),
    "version": StartOption(
        "number", "The version of the input, for a type that is not registered here.", 1
    ),
    "sealed": StartOption(
        "flag", "Encrypt input and output, if the type is not declared as sealed."
    ),
    "context": StartOption("pairs", "What it is started in, such as tenant=acme."),
}
