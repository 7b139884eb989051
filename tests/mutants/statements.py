"""The statements of a store with their fragments, and how one of them is replaced in this process."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

from holdfast.extensions import modules_of
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.sql_loader import BY_COST, without_comments
from holdfast.storage.sqlite import store as sqlite_store
from tests.mutants.mutations import Mutation, mutations

StoreName: TypeAlias = Literal["sqlite", "postgres"]

_HEADER = re.compile(r"^-- (name|fragment): (\w+)\s*$", re.M)
_FRAGMENT = re.compile(r"\{([a-z_]+)\}")
# The clock that a test sets is not a question of the statements.
_NOT_MUTATED = {"now"}
ENGINE = "holdfast"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A statement, or a fragment of statements, with one mistake."""

    store: StoreName
    package: str
    file: str
    statement: str
    mutation: Mutation

    @property
    def name(self) -> str:
        return f"{self.statement}: {self.mutation.name}"


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a statement or fragment, without comments, and where it is from."""

    package: str
    file: str
    kind: str
    text: str


@cache
def sources(store: StoreName) -> Mapping[str, Source]:
    """The statements and fragments of a store, before fragments are put in."""
    folders = {ENGINE: files(f"holdfast.storage.{store}").joinpath("sql")}
    folders |= {each: files(each).joinpath(f"sql/{store}") for each in modules_of("statements")}
    found: dict[str, Source] = {}
    entries = ((package, each) for package, folder in folders.items() for each in folder.iterdir())
    for package, entry in entries:
        if entry.name.endswith(".sql"):
            pieces = _HEADER.split(entry.read_text(encoding="utf-8"))
            for kind, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
                file, whole = entry.name.removesuffix(".sql"), body.strip().rstrip(";")
                found[name] = Source(package, file, kind, without_comments(whole))
                by_cost = BY_COST.sub(r"\1", whole)
                if kind == "name" and by_cost != whole:
                    found[f"{name}_by_cost"] = Source(
                        package, file, kind, without_comments(by_cost)
                    )
    return found


def expanded(store: StoreName, changed: Mapping[str, str]) -> dict[str, str]:
    """Every statement of a store as a process loads it, some texts changed."""
    texts = {name: each.text for name, each in sources(store).items()} | dict(changed)

    def expand(text: str) -> str:
        return _FRAGMENT.sub(lambda match: expand(texts[match[1]]), text)

    return {
        name: expand(texts[name]) for name, each in sources(store).items() if each.kind == "name"
    }


def mutants(store: StoreName) -> list[Mutant]:
    """Every mistake in every statement of a store and in their fragments."""
    return [
        Mutant(store, source.package, source.file, name, mutation)
        for name, source in sorted(sources(store).items())
        if name not in _NOT_MUTATED
        for mutation in mutations(source.text)
    ]


@cache
def users(store: StoreName, name: str) -> frozenset[str]:
    """The statements that a change of this statement or fragment changes."""
    found = sources(store)
    if found[name].kind == "name":
        return frozenset({name})
    direct = {each for each, source in found.items() if f"{{{name}}}" in source.text}
    return frozenset().union(*(users(store, each) for each in direct))


def mutate(mutant: Mutant) -> None:
    """Let this process use the statement with its mistake, from now on."""
    texts = expanded(mutant.store, {mutant.statement: mutant.mutation.text})
    module = sqlite_store if mutant.store == "sqlite" else postgres_store
    load = vars(module)["dialect_statements"]
    vars(module)["dialect_statements"] = lambda dialect: (
        texts if dialect == mutant.store else load(dialect)
    )
    sqlite_store.sqlite_statements.cache_clear()
    postgres_store.postgres_statements.cache_clear()
