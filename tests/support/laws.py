"""The laws of rows, as the ends of other tests ask for them."""

from holdfast.storage.database import Database
from holdfast_verify.laws import LawVerdict, check_laws


def breaches_of(verdicts: list[LawVerdict]) -> list[str]:
    """Return what breaks the laws, in words."""
    return [
        f"{each.law.name}: {breach.subject}: {breach.text}"
        for each in verdicts
        for breach in each.breaches
    ]


def check_rows(database: Database) -> None:
    """Fail if a row of this database breaks a law."""
    breaches = breaches_of(database.run(check_laws()))
    assert not breaches, breaches
