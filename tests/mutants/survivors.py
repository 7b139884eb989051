"""The mutants that no test has to kill, each with its reason, from survivors.toml."""

import tomllib
from functools import cache
from pathlib import Path

from tests.mutants.statements import Mutant, StoreName, mutants

FILE = Path(__file__).with_name("survivors.toml")


@cache
def argued() -> dict[tuple[str, str], str]:
    """The reasons, by store and name of the mutant."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["survivor"]
    return {
        (store, f"{row['statement']}: {mutation}"): row["why"]
        for row in rows
        for store in row["stores"]
        for mutation in row["mutations"]
    }


def is_argued(mutant: Mutant) -> bool:
    """Whether a reason is given for a mutant to survive."""
    return (mutant.store, mutant.name) in argued()


def unknown(store: StoreName) -> set[str]:
    """Names in the file that no mutant has any longer."""
    known = {each.name for each in mutants(store)}
    return {name for at, name in argued() if at == store and name not in known}
