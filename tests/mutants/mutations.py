"""Small mistakes in SQL: a condition dropped, a comparison moved by one, an order lost, an assignment forgotten.

The texts are cut into tokens, which are nested by brackets and by `case … end`; nothing else has to be understood.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*)|(?P<string>'(?:[^']|'')*')|(?P<name>\"[^\"]*\")|(?P<fragment>\{[a-z_]+\})"
    r"|(?P<parameter>:[a-z_][a-z0-9_]*)|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_]\w*(?:\.(?:\w+|\*))*)"
    r"|(?P<sign>::|<=|>=|<>|\|\||->>|->|<<|>>|.)",
    re.S,
)
_BOUNDS = frozenset(
    {
        *(
            "select",
            "from",
            "where",
            "on",
            "having",
            "group",
            "order",
            "limit",
            "offset",
            "returning",
        ),
        *("for", "union", "join", "cross", "left", "inner", "full", "set", "when", "then", "else"),
        *("values", "with", "as", "using", "do", ",", "and", "or"),
    }
)
_CONDITIONS = {"where", "on", "having"}
_FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "="}
_CHOICES = {"coalesce", "max", "min", "greatest", "least"}
_LISTS = {"json_array", "json_build_array", "values"}
# Whether there is a row, or which keys: a lost value would be a lost condition.
_ASKED = {"exists", "in", "array"}
_ENDLESS = "limit 1000000000"
_AROUND = 3
_LONGEST, _SHOWN = 120, 55


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake in a text, in words that find it again, and the text with it."""

    kind: str
    change: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.change}"


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Part(NamedTuple):
    """A run of tokens of one nesting, with the words before and after it."""

    before: str
    first: int
    last: int
    after: str


def mutations(text: str) -> list[Mutation]:
    """Every mistake that can be made in a text; those that read alike are numbered."""
    found: dict[str, Mutation] = {}
    counts: dict[str, int] = {}
    for each in _Parser(text).mutations():
        if each.text == text or any(each.text == other.text for other in found.values()):
            continue
        counts[each.name] = number = counts.get(each.name, 0) + 1
        named = each if number == 1 else Mutation(each.kind, f"{each.change} ({number})", each.text)
        found[named.name] = named
    return list(found.values())


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            _Token(str(each.lastgroup), each[0], each.start(), each.end())
            for each in _TOKEN.finditer(text)
            if each.lastgroup != "space"
        ]
        self.words = [each.text.lower() for each in self.tokens]
        self.closers: dict[int, int] = {}
        self.groups: dict[int, list[int]] = {-1: []}
        self._nest()
        self.assigned = {
            self._assignment_sign(part) for parts in self._assignments() for part in parts
        }

    def _nest(self) -> None:
        inside = [-1]
        for place, word in enumerate(self.words):
            if word in {")", "end"} and len(inside) > 1:
                self.closers[inside.pop()] = place
            self.groups[inside[-1]].append(place)
            if word in {"(", "case"}:
                inside.append(place)
                self.groups[place] = []

    # ---- What a text consists of

    def _parts(self, group: list[int], bounds: frozenset[str] = _BOUNDS) -> Iterator[_Part]:
        """Cut a nesting at the words that bound its parts."""
        before, begun = "", 0
        is_between = False
        for number, place in enumerate(group):
            word = self.words[place]
            if word == "between":
                is_between = True
            elif word == "and" and is_between:
                is_between = False
            elif word in bounds and not self._is_distinct_from(place):
                if number > begun:
                    yield _Part(before, group[begun], group[number - 1], word)
                before, begun = word, number + 1
        if begun < len(group):
            yield _Part(before, group[begun], group[-1], "")

    def _is_distinct_from(self, place: int) -> bool:
        return self.words[place] == "from" and self.words[place - 1] == "distinct"

    def _assignments(self) -> Iterator[list[_Part]]:
        """The lists of assignments: after `set`, or a fragment that is one."""
        is_list = len(self.words) > 1 and self.words[1] == "=" and self.tokens[0].kind == "word"
        for opener, group in self.groups.items():
            found: list[_Part] | None = [] if is_list and opener == -1 else None
            for part in self._parts(group):
                if part.before == "set":
                    found = []
                elif part.before != "," and found:
                    yield found
                    found = None
                if found is not None:
                    found.append(part)
            if found:
                yield found

    def _assignment_sign(self, part: _Part) -> int:
        return next((n for n in range(part.first, part.last) if self.words[n] == "="), -1)

    def _span(self, first: int, last: int) -> tuple[int, int]:
        return self.tokens[first].start, self.tokens[last].end

    def _source(self, first: int, last: int) -> str:
        start, end = self._span(first, last)
        return self.text[start:end]

    # ---- Mistakes

    def mutations(self) -> Iterator[Mutation]:
        for opener, group in self.groups.items():
            parts = list(self._parts(group))
            yield from self._conditions(parts)
            yield from self._clauses(group)
            yield from self._columns(opener, parts)
            if opener >= 0 and self.words[opener] == "case":
                yield from self._cases(opener, parts)
            elif opener > 0 and self.words[opener - 1] in _CHOICES:
                yield from self._choices(opener, group)
        for listed in self._assignments():
            yield from self._forgotten(listed)
        yield from self._signs()

    def _replace(self, kind: str, first: int, last: int, new: str) -> Mutation:
        start, end = self._span(first, last)
        old = self.text[start:end]
        change = f"{_line(old)} → {_line(new)}" if new else _line(old)
        return Mutation(kind, change, f"{self.text[:start]}{new}{self.text[end:]}")

    def _conditions(self, parts: list[_Part]) -> Iterator[Mutation]:
        for part in parts:
            if self._source(part.first, part.last) in {"true", "conflict"}:
                continue
            for word in ("and", "or"):
                if part.after == word:
                    yield self._replace(f"drop {word}", part.first, part.last + 1, "")
                elif part.before == word:
                    yield self._replace(f"drop {word}", part.first - 1, part.last, "")
                else:
                    continue
                break
            else:
                if part.before in _CONDITIONS and self.words[part.first] != "conflict":
                    yield self._replace("always", part.first, part.last, "true")

    def _clauses(self, group: list[int]) -> Iterator[Mutation]:
        for part in self._parts(group, _BOUNDS - {",", "and", "or"}):
            begun = part.first - 1
            if part.before == "order":
                yield self._replace("drop order", begun, part.last, "")
                yield self._reverse(part)
            elif part.before == "limit":
                yield self._replace("no limit", begun, part.last, _ENDLESS)
            elif part.before == "offset" and self.words[part.first] != "0":
                yield self._replace("drop offset", begun, part.last, "")
            elif part.before == "for":
                yield self._replace("drop lock", begun, part.last, "")
                if self.words[part.last] == "locked":
                    yield self._replace("wait", part.last - 1, part.last, "")
            elif part.before == "do" and self.words[part.last] == "nothing":
                start = max(n for n in group if n < begun and self.words[n] == "on")
                yield self._replace("drop conflict", start, part.last, "")
            elif part.before == "select" and self.words[part.first] == "distinct":
                yield self._replace("drop distinct", part.first, part.first, "")

    def _reverse(self, part: _Part) -> Mutation:
        inside = 0
        last = part.first
        for place in range(part.first + 1, part.last + 1):
            inside += (self.words[place] in {"(", "case"}) - (self.words[place] in {")", "end"})
            if self.words[place] == "," and inside == 0:
                break
            last = place
        if self.words[last] in {"asc", "desc"}:
            return self._replace(
                "reverse", part.first - 1, last, self._source(part.first - 1, last - 1)
            )
        return self._replace(
            "reverse", part.first - 1, last, f"{self._source(part.first - 1, last)} desc"
        )

    def _columns(self, opener: int, parts: list[_Part]) -> Iterator[Mutation]:
        """A value that is written or answered, lost."""
        before = self.words[opener - 1] if opener > 0 else ""
        is_listed = before in _LISTS
        for part in parts:
            if part.before in {"as", "and", "or"}:
                continue
            if part.before in {"select", "values", "returning"}:
                is_listed = before not in _ASKED
            elif part.before != "," and not (part.before == "" and before in _LISTS):
                is_listed = False
            if is_listed and self._is_value(part):
                yield self._replace("null", part.first, part.last, "null")

    def _is_value(self, part: _Part) -> bool:
        first = self.words[part.first]
        if first in {"distinct", "null", "("} and part.before in {"select", "values"}:
            return False
        return not (
            first.endswith("*") or self.tokens[part.first].kind == "number" or first == "null"
        )

    def _cases(self, opener: int, parts: list[_Part]) -> Iterator[Mutation]:
        arms = [part for part in parts if part.before == "when"]
        starts = [n for n in self.groups[opener] if self.words[n] in {"when", "else"}]
        end = self.closers[opener]
        if len(arms) < 1:
            return
        for first, after in pairwise([*starts, end]):
            if self.words[first] == "else":
                yield self._replace("drop else", first, after - 1, "")
            elif sum(self.words[n] == "when" for n in starts) > 1:
                yield self._replace("drop when", first, after - 1, "")
            elif self.words[starts[-1]] == "else":
                yield self._replace(
                    "drop when", opener, end, f"({self._source(starts[-1] + 1, end - 1)})"
                )
            else:
                yield self._replace("drop when", opener, end, "null")
                then = next(n for n in self.groups[opener] if self.words[n] == "then")
                yield self._replace("always", opener, end, f"({self._source(then + 1, end - 1)})")

    def _choices(self, opener: int, group: list[int]) -> Iterator[Mutation]:
        arms = list(self._parts(group, frozenset(",")))
        if len(arms) > 1:
            for arm in arms:
                yield self._replace(
                    "one arm",
                    opener - 1,
                    self.closers[opener],
                    f"({self._source(arm.first, arm.last)})",
                )

    def _forgotten(self, listed: list[_Part]) -> Iterator[Mutation]:
        for part in listed:
            sign = self._assignment_sign(part)
            if sign < 0:
                continue
            if part.after == ",":
                yield self._replace("drop set", part.first, part.last + 1, "")
            elif part.before == ",":
                yield self._replace("drop set", part.first - 1, part.last, "")
            else:
                column = self._source(part.first, sign - 1)
                yield self._replace("drop set", part.first, part.last, f"{column} = {column}")

    def _signs(self) -> Iterator[Mutation]:
        for place, word in enumerate(self.words):
            after = self.words[place + 1] if place + 1 < len(self.words) else ""
            if word in _FLIPPED and place not in self.assigned and after not in {"any", "all"}:
                yield self._around("compare", place, place, _FLIPPED[word])
            elif word == "is" and after == "not":
                yield self._around("negate", place, place + 1, "is")
            elif word == "is" and after == "null":
                yield self._around("negate", place, place, "is not")
            elif word == "not" and after != "materialized" and self.words[place - 1] != "is":
                yield self._around("negate", place, place, "")
            elif word in {"+", "-"} and self._is_operand(place - 1):
                if self.tokens[place + 1].kind == "number":
                    yield self._around("plus nothing", place + 1, place + 1, "0")
                else:
                    yield self._around("sign", place, place, "-" if word == "+" else "+")

    def _is_operand(self, place: int) -> bool:
        word = self.words[place]
        if word in {")", "end"}:
            return True
        return word not in _BOUNDS and self.tokens[place].kind not in {"sign"}

    def _around(self, kind: str, first: int, last: int, new: str) -> Mutation:
        """Replace a few tokens, and name them with their neighbours, by which they are found."""
        made = self._replace(kind, first, last, new)
        low, high = max(first - _AROUND, 0), min(last + _AROUND, len(self.tokens) - 1)
        old = self._source(low, high)
        start, end = self._span(first, last)
        base = self.tokens[low].start
        changed = f"{old[: start - base]}{new}{old[end - base :]}"
        return Mutation(kind, f"{_line(old)} → {_line(changed)}", made.text)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_SHOWN]} … {line[-_SHOWN:]}"
