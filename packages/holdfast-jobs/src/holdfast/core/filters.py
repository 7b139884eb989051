"""The filter language of lists: `state:failed type:mail.* age>5m attempt>=3 error:"timed out"`.

A filter is a list of terms that must all hold; commas in a value mean any of, and a word without a key is
searched as text. FIELDS declares each term once: the parser, the store's query, the help of pages and commands
and the docs follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from holdfast.core.duration import format_duration, milliseconds
from holdfast.core.errors import FilterError, InvalidDuration, InvalidId, nearest
from holdfast.core.ids import parse_id
from holdfast.core.lifecycle import STATES

MAX_FILTER_LENGTH = 1_000
MAX_TERMS = 20
LARGEST_NUMBER = 2**31 - 1

Operator: TypeAlias = Literal[":", ">", ">=", "<", "<="]
Kind: TypeAlias = Literal["state", "text", "id", "duration", "number"]
Match: TypeAlias = Literal[
    "any", "any or pattern", "equal", "equal or pattern", "contains", "words", "range", "context"
]
Value: TypeAlias = str | int

COMPARISONS: tuple[Operator, ...] = (">", ">=", "<", "<=")

_TERM = re.compile(r"(?P<field>[^\s:<>\",]+)(?P<operator>:|>=|<=|>|<)")
_VALUE = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s",]+)')
_SPACES = re.compile(r"\s*")
_SIGNS = re.compile("[:<>]")
_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Field:
    """What can be filtered by: the kind of its values, how they match, and its help.

    `params` are the parameters of the store's query that it sets, in the order of `match`; a range
    has both bounds. In examples ID is an id.
    """

    name: str
    kind: Kind
    match: Match
    params: tuple[str, ...]
    example: str
    text: str
    operators: tuple[Operator, ...] = (":",)


FIELDS: Mapping[str, Field] = {
    each.name: each
    for each in (
        Field(
            "state",
            "state",
            "any",
            ("states",),
            "state:failed,cancelled",
            f"State: {', '.join(STATES[:-1])} or {STATES[-1]}.",
        ),
        Field(
            "type",
            "text",
            "any or pattern",
            ("types", "type_like"),
            "type:mail.*",
            "Job type; * matches any text.",
        ),
        Field(
            "age",
            "duration",
            "range",
            ("age_min_ms", "age_max_ms"),
            "age>5m",
            "Time since it was created.",
            COMPARISONS,
        ),
        Field(
            "attempt",
            "number",
            "range",
            ("attempt_min", "attempt_max"),
            "attempt>=3",
            "Number of attempts.",
            (":", *COMPARISONS),
        ),
        Field(
            "error", "text", "contains", ("error_like",), 'error:"timed out"', "Text in the error."
        ),
        Field(
            "fingerprint",
            "text",
            "equal",
            ("fingerprint",),
            "fingerprint:5d1c0c6d3f1a2b4e",
            "One group of errors, as `holdfast dead list` prints it; for its text, use error.",
        ),
        Field("chain", "id", "equal", ("chain",), "chain:ID", "The jobs of a chain."),
        Field(
            "blocker",
            "id",
            "equal",
            ("blocker",),
            "blocker:ID",
            "Jobs that wait or waited for a chain.",
        ),
        Field(
            "key",
            "text",
            "equal or pattern",
            ("key", "key_like"),
            "key:charge:7",
            "Key; * matches any text.",
        ),
        Field(
            "worker",
            "text",
            "equal",
            ("worker",),
            "worker:w-1",
            "The worker that holds or finished it.",
        ),
        Field(
            "step", "text", "equal", ("step",), "step:charge", "Functions with a step of this name."
        ),
        Field(
            "waiting",
            "text",
            "equal",
            ("waiting",),
            "waiting:approved",
            "Functions that wait for a signal of this name.",
        ),
        Field(
            "context.NAME",
            "text",
            "context",
            ("context",),
            "context.tenant:acme",
            "What it was started in, by the names that your application gives.",
        ),
        Field("id", "id", "any", ("ids",), "id:ID", "One job, or several by comma."),
        Field(
            "text",
            "text",
            "words",
            ("words",),
            '"timed out"',
            "Text in the type, key, error or id; each word without a key is searched.",
        ),
    )
}
"""Every term there is, by name, in the order of the help."""

CONTEXT = "context."
is_context_name = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII).fullmatch


def field_of(name: str) -> Field:
    """Return what a term filters by. Raises: FilterError."""
    is_context = name.startswith(CONTEXT) and is_context_name(name.removeprefix(CONTEXT))
    found = FIELDS.get("context.NAME" if is_context else name)
    if found is None:
        raise FilterError(f"{name[:40]!r} is not a filter key", help=_help_with(name, FIELDS))
    return found


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on a field: `:` means any of the values, the others compare with one.

    Durations are milliseconds, numbers are ints, everything else is text.
    """

    field: str
    operator: Operator
    values: tuple[Value, ...]


def parse_filter(text: str, words: bool = True) -> tuple[Term, ...]:
    """Return the terms of a filter, or raise FilterError with the nearest name that exists.

    `words=False` refuses words without a key, and no terms at all: what changes jobs should not follow from a mistyped
    id, or from a variable that is empty.
    """
    if len(text) > MAX_FILTER_LENGTH:
        raise FilterError(
            f"the filter has {len(text)} characters, the limit is {MAX_FILTER_LENGTH}"
        )
    if _UNSTORABLE.search(text):
        raise FilterError("the filter contains a control character")
    terms = tuple(_terms(text, words))
    if len(terms) > MAX_TERMS:
        raise FilterError(f"the filter has {len(terms)} terms, the limit is {MAX_TERMS}")
    if not terms and not words:
        raise FilterError("the filter is empty", help="to choose all of them, name their state")
    return terms


def format_filter(terms: Iterable[Term]) -> str:
    """Return the text that `parse_filter` reads as the same terms."""
    return " ".join(
        f"{term.field}{term.operator}{','.join(_format(term.field, each) for each in term.values)}"
        for term in terms
    )


def _terms(text: str, words: bool) -> Iterator[Term]:
    position = _after_spaces(text, 0)
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            _check_word(text, position, words)
            values, position = _values(text, position)
            yield _term("text", ":", values)
        else:
            values, position = _values(text, match.end())
            yield _term(match["field"], cast(Operator, match["operator"]), values)
        position = _after_spaces(text, position)


def _check_word(text: str, position: int, words: bool) -> None:
    """Refuse what cannot be a word without a key."""
    match = _VALUE.match(text, position)
    if match is not None and words and not (match["bare"] and _SIGNS.search(match["bare"])):
        return
    word = text[position:].split()[0]
    keys = ", ".join(FIELDS)
    quote = ", or quote text to search for it" if words else ""
    raise FilterError(
        f"{word[:40]!r} is not a term", help=f"write key:value, with a key of {keys}{quote}"
    )


def _values(text: str, position: int) -> tuple[list[str], int]:
    values = []
    while match := _VALUE.match(text, position):
        quoted = match["quoted"]
        values.append(match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = match.end()
        if text[position : position + 1] != ",":
            break
        position += 1
    else:
        raise FilterError(
            f"a value is missing after {text[:position].split()[-1][-40:]!r}",
            help="""quote text that has spaces or signs; a shell takes 'error:"HTTP Error 500"'""",
        )
    if position < len(text) and not text[position].isspace():
        raise FilterError(
            f"{text[position : position + 40]!r} is unexpected after the previous value"
        )
    return values, position


def _term(name: str, operator: Operator, values: list[str]) -> Term:
    field = field_of(name)
    if operator not in field.operators:
        allowed = " ".join(field.operators)
        raise FilterError(
            f"{name!r} cannot be combined with {operator!r}", help=f"use one of {allowed}"
        )
    if operator in COMPARISONS and len(values) > 1:
        raise FilterError(f"{name!r} can be compared with one value only", help="repeat the term")
    return Term(name, operator, tuple(_read(field.kind, each) for each in values))


def _read(kind: Kind, text: str) -> Value:
    match kind:
        case "state":
            return _read_state(text)
        case "number":
            return _read_number(text)
        case "text":
            if not text:
                raise FilterError("a value is empty")
            return text
        case "id" | "duration":
            try:
                return str(parse_id(text)) if kind == "id" else milliseconds(text)
            except (InvalidId, InvalidDuration) as error:
                raise FilterError(error.message, help=error.help) from error


_STATES_ELSEWHERE = dict.fromkeys(("active", "claimed", "executing", "processing"), "running")
_STATES_ELSEWHERE |= {"queued": "pending", "scheduled": "pending", "dead": "failed"}


def _read_state(text: str) -> str:
    if text not in STATES:
        meant = _STATES_ELSEWHERE.get(text.lower())
        near = f"did you mean {meant}?" if meant else nearest(text.lower(), STATES)
        help = f"{near} The states are {', '.join(STATES)}".strip()
        raise FilterError(f"{text[:40]!r} is not a state", help=help)
    return text


def _read_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > LARGEST_NUMBER:
        raise FilterError(f"{text[:40]!r} is not a whole number", help="write one like 3")
    return int(text)


def _help_with(name: str, known: Iterable[str]) -> str:
    names = list(known)
    return nearest(name.lower(), names) or f"use one of {', '.join(names)}"


def _format(field: str, value: Value) -> str:
    if isinstance(value, int):
        return format_duration(value) if field == "age" else str(value)
    if _VALUE.fullmatch(value) and '"' not in value:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _after_spaces(text: str, position: int) -> int:
    match = _SPACES.match(text, position)
    return match.end() if match else position
