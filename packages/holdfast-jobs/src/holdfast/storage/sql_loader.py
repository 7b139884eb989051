"""Reads `.sql` files of named statements and compiles their neutral `:name` parameters for each driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Literal

from holdfast.core.errors import InvalidIdentifier
from holdfast.extensions import modules_of

ParamStyle = Literal["pyformat", "dollar", "named"]

DEFAULT_SCHEMA = "holdfast"

_HEADER = re.compile(r"^-- (name|fragment): (\w+)\s*$", re.MULTILINE)
BY_COST = re.compile(r"^--cost (.*\n)", re.MULTILINE)
_FRAGMENT = re.compile(r"\{([a-z_]+)\}")
# PostgreSQL keeps names that begin with pg_ to itself.
_IDENTIFIER = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# Quoted strings, quoted identifiers, comments and casts come first, so that a colon inside them is never a parameter.
_TOKEN = re.compile(
    r"(?P<skip>'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|::)|:(?P<name>[a-z_][a-z0-9_]*)|(?P<percent>%)"
)


@dataclass(frozen=True)
class Compiled:
    """A statement ready for one driver; `order` names the positional parameters of `dollar` style."""

    text: str
    order: tuple[str, ...]

    @cached_property
    def data(self) -> bytes:
        """The text for drivers that take bytes; always the same object, so that its hash is made once."""
        return self.text.encode()


def check_identifier(name: str) -> str:
    """Return a schema name that is safe to quote, or raise."""
    if not _IDENTIFIER.fullmatch(name):
        raise InvalidIdentifier(f"{name!r} cannot be the name of a schema")
    return name


def quote(name: str) -> str:
    """Return a name of a column as SQL, quoted. Raises: InvalidIdentifier."""
    if not _NAME.fullmatch(name):
        raise InvalidIdentifier(
            f"{name[:70]!r} is not the name of a table or column",
            help="use letters, digits and underscores; a table can be qualified with a schema",
        )
    return f'"{name}"'


def quote_table(name: str) -> str:
    """Return the name of a table as SQL, quoted; it may have a schema before a dot. Raises: InvalidIdentifier."""
    if name.count(".") > 1:
        raise InvalidIdentifier(f"{name[:70]!r} has too many dots")
    return ".".join(map(quote, name.split(".")))


@lru_cache(maxsize=8)
def load_statements(*folders: tuple[str, str] | str) -> Mapping[str, str]:
    """Read every named statement in folders of packages, with `{name}` replaced by the fragment of that name.

    A package alone means its folder `sql`. Lines that begin with `--cost` make a second statement of theirs.
    """
    found: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    for each in folders:
        package, folder = (each, "sql") if isinstance(each, str) else each
        for entry in sorted(files(package).joinpath(folder).iterdir(), key=lambda one: one.name):
            if entry.name.endswith(".sql"):
                _read_parts(entry.read_text(encoding="utf-8"), package, found)

    def expand(text: str) -> str:
        return _FRAGMENT.sub(
            lambda match: expand(without_comments(found["fragment"][match[1]])), text
        )

    plain = found["name"]
    by_cost = {f"{name}_by_cost": BY_COST.sub(r"\1", text) for name, text in plain.items()}
    texts = plain | {name: text for name, text in by_cost.items() if text not in plain.values()}
    return {name: expand(BY_COST.sub("", text)) for name, text in texts.items()}


def _read_parts(text: str, package: str, found: dict[str, dict[str, str]]) -> None:
    parts = _HEADER.split(text)
    for kind, name, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if name in found[kind]:
            raise ValueError(f"{name} is defined twice in {package}")
        found[kind][name] = body.strip().rstrip(";")


def dialect_statements(dialect: Literal["postgres", "sqlite"]) -> Mapping[str, str]:
    """Read every statement of a dialect, those of extensions included; they may use its fragments."""
    own = [(package, f"sql/{dialect}") for package in modules_of("statements")]
    return load_statements(f"holdfast.storage.{dialect}", *own)


def without_comments(text: str) -> str:
    """Drop the lines that are comments."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def place_schema(text: str, schema: str) -> str:
    """Point every `holdfast.` name of a PostgreSQL text at the chosen schema, quoted."""
    quoted = f'"{check_identifier(schema)}"'
    placed = re.sub(r"\bholdfast\.(?=[a-z_])", lambda _: quoted + ".", text)
    return re.sub(r"(?<=schema if not exists )holdfast\b", lambda _: quoted, placed)


def compile_statement(text: str, style: ParamStyle) -> Compiled:
    """Turn `:name` parameters into a driver's own, as text where the server does the casting."""
    order: list[str] = []

    def place(name: str) -> str:
        if style == "named":
            return f":{name}"
        if style == "pyformat":
            return f"%({name})s::pg_catalog.text"
        if name not in order:
            order.append(name)
        return f"${order.index(name) + 1}::pg_catalog.text"

    def replace(match: re.Match[str]) -> str:
        if match["name"] is not None:
            return place(match["name"])
        if style == "pyformat":
            return match[0].replace("%", "%%")
        return match[0]

    return Compiled(_TOKEN.sub(replace, text), tuple(order))
