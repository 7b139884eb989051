"""Qualifies what our statements name, so that nothing on the search path can take its place.

A statement runs on whatever connection the caller has. A role that may create functions, operators or types in a schema
of its search path could have ours call them: those before pg_catalog, and even those behind it that fit better.
So `a = b` is sent as `(a operator(pg_catalog.=) b)`. All operators in that form have one precedence, hence the
parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"(\s*(?:--[^\n]*\s*)*)"
    r"(?:([eE]?'(?:[^']|'')*'|\"[^\"]*\"|::|:[a-z_]\w*|\d+(?:\.\d+)?)|([A-Za-z_]\w*)|([-+*/<>=~!@#%^&|?]+)|(.))"
)

_CATALOGUE = "pg_catalog."
_PRECEDENCE = {"*": 8, "/": 8, "%": 8, "+": 7, "-": 7} | dict.fromkeys(
    ("<", ">", "=", "<=", ">=", "<>"), 4
)
_OTHER_OPERATORS = 6
_RANGES = 5
_LIKE = {"like": "~~", "ilike": "~~*"}
_NOT_LIKE = {"like": "!~~", "ilike": "!~~*"}
# The grammar's own: neither looked up by name nor part of a value.
_KEYWORD_LIST = """
and as asc between by cross delete desc distinct else end for from full group having ilike in inner insert into is
join lateral like limit materialized not offset on or order over partition recursive returning right select set then
union update using values when where with
"""
_KEYWORDS = frozenset(_KEYWORD_LIST.split())
_FUNCTION_LIST = """
array_agg array_position bit_or bool_and bool_or cardinality ceil clock_timestamp concat_ws count current_database
current_setting date_bin date_trunc generate_series has_column_privilege has_table_privilege hashtext hashtextextended
json_agg json_array_elements json_array_elements_text json_build_array json_build_object json_each_text json_object_agg
json_to_record json_to_recordset length lower max min nextval pg_backend_pid pg_control_checkpoint pg_current_wal_lsn
pg_get_expr pg_has_role pg_is_in_recovery pg_jit_available pg_last_wal_receive_lsn pg_logical_emit_message pg_notify
pg_postmaster_start_time pg_relation_size pg_sequence_last_value pg_stat_get_dead_tuples pg_terminate_backend
pg_total_relation_size pg_try_advisory_xact_lock pg_walfile_name power replace right round row_number set_config
split_part starts_with string_agg strpos substr sum to_json to_timestamp unnest
"""
FUNCTIONS = frozenset(_FUNCTION_LIST.split())
"""The functions that our statements call; a test finds those that are missing here."""
_TYPES = frozenset(
    {"bytea", "date", "inet", "json", "jsonb", "name", "oid", "regclass", "text", "timestamptz"}
    | {"uuid", "xid", "xid8"}
)


class _Node:
    """A token, or all tokens between brackets or CASE and END. `word` and `operator` are empty where it is none."""

    __slots__ = ("end", "inside", "operator", "space", "text", "word")

    def __init__(self, space: str, text: str, word: str = "", operator: str = "") -> None:
        self.space, self.text, self.word, self.operator = space, text, word, operator
        self.inside: list[_Node] | None = None
        self.end = ""

    def is_group(self, opening: str) -> bool:
        return self.inside is not None and self.text == opening


_NOTHING = _Node("", "")


def qualify(text: str) -> str:
    """Return a statement in which every function, operator, type and table that is not ours is that of pg_catalog."""
    nodes, rest = _nodes(iter(_TOKEN.findall(text)), "")
    return "".join(_Part(nodes).parts()) + rest


_PAIRS = {"(": ")", "[": "]", "case": "end"}


def _nodes(tokens: Iterator[tuple[str, ...]], closing: str) -> tuple[list[_Node], str]:
    """Read up to a closing bracket; return with it what came before it."""
    found: list[_Node] = []
    for space, value, word, operator, other in tokens:
        text = value or word or operator or other
        if text == closing:
            return found, space + text
        node = _Node(space, text, word, operator)
        found.append(node)
        if text in _PAIRS:
            node.word = ""
            node.inside, node.end = _nodes(tokens, _PAIRS[text])
    return found, ""


class _Part:
    """The tokens between two brackets: clauses with expressions in them."""

    def __init__(self, nodes: list[_Node]) -> None:
        self._nodes = nodes
        self._at = 0
        self._assigns = False
        """Whether the next `=` is that of SET."""
        self._in_set = False

    def parts(self) -> Iterator[str]:
        """Yield the text, expression by expression."""
        while self._at < len(self._nodes):
            node = self._nodes[self._at]
            if self._is_value(node):
                yield self._expression(0)
            else:
                self._at += 1
                self._note_clause(node)
                yield node.space + node.text

    def _note_clause(self, node: _Node) -> None:
        if node.word == "set":
            self._in_set = self._assigns = True
        elif node.word in ("where", "from", "returning"):
            self._in_set = False
        elif node.text == ",":
            self._assigns = self._in_set

    def _peek(self, ahead: int = 0) -> _Node:
        place = self._at + ahead
        return self._nodes[place] if place < len(self._nodes) else _NOTHING

    def _is_value(self, node: _Node) -> bool:
        if node.inside is not None:
            return True
        if node.operator:
            return node.operator in ("-", "+") and self._peek(1).text != ","
        if node.word in ("left", "right"):
            return self._peek(1).is_group("(") and not self._peek(1).space
        return node.text not in (",", ";", ".", ":", "::", "") and node.word not in _KEYWORDS

    # ---- Expressions

    def _expression(self, least: int) -> str:
        space, left = _split_space(self._operand())
        while True:
            if self._assigns and self._peek().text == "=":
                self._assigns = False
                break
            combined = self._combine(left, least)
            if combined is None:
                break
            left = combined
        return space + left

    def _combine(self, left: str, least: int) -> str | None:
        node = self._peek()
        if node.operator:
            precedence = _PRECEDENCE.get(node.operator, _OTHER_OPERATORS)
            if precedence < least or (node.operator == "*" and not self._is_value(self._peek(1))):
                return None
            self._at += 1
            return _apply(left, node.operator, self._expression(precedence + 1))
        is_negated = node.word == "not"
        word = self._peek(is_negated).word
        if word in ("in", "between", *_LIKE) and least <= _RANGES:
            self._at += 1 + is_negated
            return self._range(left, word, is_negated)
        return None

    def _range(self, left: str, word: str, is_negated: bool) -> str:
        if word in _LIKE:
            known = _NOT_LIKE if is_negated else _LIKE
            return _apply(left, known[word], self._expression(_OTHER_OPERATORS))
        if word == "in":
            inside = self._operand().strip()
            if self._nodes[self._at - 1].inside[0].word not in ("select", "with"):  # type: ignore[index]
                inside = f"(array[{inside[1:-1]}])"
            return _apply(
                left, *(("<>", f" all {inside}") if is_negated else ("=", f" any {inside}"))
            )
        lowest = self._expression(_OTHER_OPERATORS)
        self._at += 1
        within = f"{_apply(left, '>=', lowest)} and {_apply(left, '<=', self._expression(_OTHER_OPERATORS))}"
        return f"(not ({within}))" if is_negated else f"({within})"

    # ---- Values

    def _operand(self) -> str:
        node = self._peek()
        self._at += 1
        if node.operator:
            return self._read_sign(node)
        if node.inside is not None:
            text = node.space + self._group(node)
        elif self._peek().is_group("(") and node.word:
            text = node.space + self._read_call(node)
        else:
            text = node.space + self._read_name(node)
        return text + "".join(self._tail())

    def _read_sign(self, node: _Node) -> str:
        is_number = self._peek().text[:1].isdigit()
        sign = node.text if is_number else f"operator({_CATALOGUE}{node.text}) "
        return f"{node.space}{sign}{self._operand()}"

    def _read_call(self, node: _Node) -> str:
        group = self._peek()
        is_call = not group.space and node.word in FUNCTIONS
        if node.word == "unnest" and any(each.text == "," for each in group.inside or ()):
            is_call = False  # of several arrays, it is the grammar's own
        return _CATALOGUE * is_call + node.text

    def _read_name(self, node: _Node) -> str:
        if node.word.startswith("pg_") and node.word != "pg_catalog":
            return _CATALOGUE + node.text
        is_type = node.word in _TYPES
        after = self._peek()
        if after.text.startswith("'") and (is_type or node.word == "interval"):
            self._at += 1
            return f"{_CATALOGUE * is_type}{node.text}{after.space}{after.text}"
        return _CATALOGUE * (is_type and self._is_declared()) + node.text

    def _is_declared(self) -> bool:
        """Whether the word just read is a column's type: it follows the name of the column."""
        before = self._nodes[self._at - 2] if self._at >= 2 else _NOTHING
        is_named = bool(before.word) and before.word not in _KEYWORDS
        return is_named and (self._peek().text in (",", "") or self._peek().is_group("["))

    def _tail(self) -> Iterator[str]:
        """What belongs to a value behind it: dots, calls, indexes, casts, OVER and FILTER."""
        while True:
            node, after = self._peek(), self._peek(1)
            if node.inside is not None and node.text != "case":
                self._at += 1
                yield node.space + self._group(node)
            elif node.text == "." or node.word in ("over", "filter"):
                self._at += 2
                yield node.space + node.text + after.space
                yield after.text if after.inside is None else self._group(after)
            elif node.text == "::":
                self._at += 2
                yield f"::{_CATALOGUE * (after.word in _TYPES)}{after.text}"
            else:
                return

    def _group(self, node: _Node) -> str:
        assert node.inside is not None
        part = _Part(node.inside)
        return node.text + "".join(part.parts()) + node.end


def _split_space(text: str) -> tuple[str, str]:
    """Return what is before a text's first character that counts, and the rest."""
    match = re.match(r"(?:\s+|--[^\n]*\n)*", text)
    place = match.end() if match else 0
    return text[:place], text[place:]


def _apply(left: str, operator: str, right: str) -> str:
    return (
        f"({left} operator({_CATALOGUE}{operator}){right if right[:1].isspace() else ' ' + right})"
    )
