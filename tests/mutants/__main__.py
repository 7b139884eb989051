"""Makes small mistakes in our SQL, one at a time, and runs the tests that execute them: python -m tests.mutants.

A mistake that no test notices survives. Exits with 1 if one does that survivors.toml gives no reason for, or if no test
executes the statement of one.
"""

import argparse
import json
import random
import re
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from holdfast.storage.postgres.qualify import qualify
from holdfast.storage.sql_loader import DEFAULT_SCHEMA, compile_statement, place_schema
from holdfast.storage.sqlite.migrations import migration_sql
from tests.mutants.statements import ENGINE, Mutant, StoreName, expanded, mutants, users
from tests.mutants.survivors import is_argued, unknown
from tests.mutants.warm_session import Touch, Verdict, WarmSession, say, work_with

ROOT = Path(__file__).parents[2]
TOUCHES = ROOT / "build" / "mutants"
EXTENSIONS = {
    "holdfast_archive": "tests/archive",
    "holdfast_context": "tests/context",
    "holdfast_costs": "tests/costs",
    "holdfast_files": "tests/large_values",
    "holdfast_groups": "tests/groups",
    "holdfast_output": "tests/output",
    "holdfast_schedules": "tests/schedules",
    "holdfast_streams": "tests/streams",
    "holdfast_verify": "tests/verify",
}
"""Where the statements of extensions are executed."""

SUITES = {
    "sqlite": (
        "tests/contract/test_stores.py", "tests/contract/test_limit_steps.py", "tests/contract/test_fan_in.py",
        "tests/contract/test_reaped_rows.py", "tests/storage/sqlite", "tests/storage/test_store.py", "tests/steps",
        "tests/leases", "tests/commands", "tests/client", "tests/scheduler", "tests/worker", "tests/admin",
        *EXTENSIONS.values(),
    ),
    "postgres": (
        "tests/contract/test_stores.py", "tests/contract/test_interleavings.py", "tests/contract/test_row_locks.py",
        "tests/contract/test_postgres_isolation.py", "tests/contract/test_postgres_stale_claims.py",
        "tests/contract/test_postgres_steps.py", "tests/contract/test_fan_in.py", "tests/contract/test_limit_steps.py",
        "tests/contract/test_postgres_evictions.py", "tests/contract/test_reaped_rows.py",
        "tests/storage/test_fences.py", "tests/steps", "tests/leases", *EXTENSIONS.values(),
    ),
}  # fmt: skip
LONGEST_TEST_S = 3.0
NEAREST = {ENGINE: "tests/contract/test_stores.py", **EXTENSIONS}
"""The tests of a package whose questions are narrow."""


@dataclass(slots=True)
class Tally:
    """What became of the mutants so far."""

    total: int
    path: Path | None
    verdicts: list[Verdict] = field(default_factory=list)
    survivors: list[Verdict] = field(default_factory=list)
    killers: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    begun: float = field(default_factory=time.monotonic)

    def add(self, verdict: Verdict) -> None:
        """Note a verdict, and say it if the mutant has survived."""
        self.verdicts.append(verdict)
        if self.path is not None:
            _append(self.path, verdict)
        if verdict.killer is None:
            self.survivors.append(verdict)
            word = "argued" if is_argued(verdict.mutant) else "SURVIVED"
            say(f"{word}  {verdict.mutant.name}  ({verdict.tests} tests)")
        elif not verdict.is_slow:
            self.kills[verdict.mutant.package, verdict.killer] += 1
            known = self.killers[verdict.mutant.statement]
            if verdict.killer in known:
                known.remove(verdict.killer)
            known.insert(0, verdict.killer)
        if len(self.verdicts) % 50 == 0:
            spent = time.monotonic() - self.begun
            say(f"… {len(self.verdicts)} of {self.total} in {spent:.0f} s")


def read_touches(store: StoreName, warm: WarmSession, again: bool) -> list[Touch]:
    """Which tests execute which statements; tests that were not seen before, or all of them again, are run for it."""
    path = TOUCHES / f"{store}.json"
    rows: dict[str, tuple[float, list[str]]] = {}
    if path.exists() and not again:
        rows = json.loads(path.read_text(encoding="utf-8"))
    new = [name for name in warm.items if name not in rows]
    if new:
        say(f"running {len(new)} tests to see which statements each executes")
        rows |= {
            each.test: (each.seconds, sorted(each.statements)) for each in warm.record(new, say)
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows), encoding="utf-8")
    known = {name: rows[name] for name in warm.items if name in rows}
    return [Touch(name, seconds, frozenset(found)) for name, (seconds, found) in known.items()]


def accepted(store: StoreName, chosen: Sequence[Mutant], url: str | None) -> Iterator[Mutant]:
    """The mutants that the database accepts as SQL: the others would be no test of the tests."""
    if store == "sqlite":
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as file:
            file.executescript(migration_sql())
            yield from (each for each in chosen if _sqlite_accepts(file, each))
    else:
        assert url is not None
        with psycopg.connect(url, autocommit=True) as server:
            yield from (each for each in chosen if _postgres_accepts(server, each))


def _texts(mutant: Mutant) -> list[str]:
    texts = expanded(mutant.store, {mutant.statement: mutant.mutation.text})
    return [texts[each] for each in users(mutant.store, mutant.statement)]


def _sqlite_accepts(file: sqlite3.Connection, mutant: Mutant) -> bool:
    for text in _texts(mutant):
        try:
            file.execute(f"explain {text}", dict.fromkeys(re.findall(r":([a-z_]+)", text)))
        except sqlite3.Error:
            return False
    return True


def _postgres_accepts(server: psycopg.Connection, mutant: Mutant) -> bool:
    for text in _texts(mutant):
        compiled = compile_statement(place_schema(qualify(text), DEFAULT_SCHEMA), "dollar")
        result = server.pgconn.prepare(b"mutant", compiled.data)
        if result.error_message:
            return False
        server.execute("deallocate mutant")
    return True


def ordered(mutant: Mutant, touches: Sequence[Touch], tally: Tally, budget: float) -> list[Touch]:
    """The tests that execute a mutant, for so many seconds: first those that killed one of the same statement, then
    those nearest to its package; of these the fastest, and those that have killed most.
    """
    used = users(mutant.store, mutant.statement)
    found = [each for each in touches if each.statements & used]
    # One that takes long is better than none.
    quick = [each for each in found if each.seconds <= LONGEST_TEST_S]
    found = quick or sorted(found, key=lambda each: each.seconds)[:1]
    rank = {test: place for place, test in enumerate(tally.killers[mutant.statement])}
    found.sort(
        key=lambda each: (
            rank.get(each.test, len(rank)),
            not each.test.startswith(NEAREST[mutant.package]),
            each.seconds / (1 + tally.kills[mutant.package, each.test]),
        )
    )
    kept: list[Touch] = []
    for each in found:
        budget -= each.seconds
        if budget < 0 and kept:
            break
        kept.append(each)
    return kept


def table(tally: Tally, unrun: Counter[str]) -> None:
    """Print the counts by statement and by kind."""
    keys: dict[str, Callable[[Mutant], str]] = {
        "statement": lambda mutant: mutant.statement,
        "kind": lambda mutant: mutant.mutation.kind,
    }
    for title, key in keys.items():
        run = Counter(key(each.mutant) for each in tally.verdicts)
        alive = Counter(key(each.mutant) for each in tally.survivors)
        say(f"\n{title:<32} {'run':>6} {'killed':>7} {'alive':>6}")
        for name in sorted(run):
            say(f"{name:<32} {run[name]:>6} {run[name] - alive[name]:>7} {alive[name]:>6}")
    if unrun:
        say(
            f"\nno test executes: {', '.join(f'{name} ({n})' for name, n in sorted(unrun.items()))}"
        )


def main() -> int:
    """Choose the mutants, and run them."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--statement", action="append", help="of this statement or fragment")
    parser.add_argument("--package", action="append", help="of this one, such as holdfast_streams")
    parser.add_argument("--file", action="append", help="of this file of statements, such as lease")
    parser.add_argument("--kind", action="append", help="of this kind, such as 'drop and'")
    parser.add_argument("--sample", type=int, default=200, help="so many, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--list", action="store_true", help="print them only")
    parser.add_argument("--children", type=int, default=2, help="so many at once")
    parser.add_argument(
        "--budget", type=float, default=20.0, help="seconds of tests for one mutant"
    )
    parser.add_argument(
        "--verdicts", type=Path, help="add every verdict to this file, as JSON lines"
    )
    parser.add_argument("--again", type=Path, help="only those that survived in such a file")
    parser.add_argument(
        "--record", action="store_true", help="see again which tests execute which statements"
    )
    parser.add_argument("--tests", nargs="+", help="choose from these tests instead")
    options = parser.parse_args()
    store: StoreName = options.store
    stale = unknown(store)
    for name in sorted(stale):
        say(f"survivors.toml names a mutant that there is not: {name}")
    chosen = [
        each
        for each in mutants(store)
        if (not options.statement or each.statement in options.statement)
        and (not options.package or each.package in options.package)
        and (not options.file or each.file in options.file)
        and (not options.kind or each.mutation.kind in options.kind)
    ]
    if options.again:
        survived = _survivors(options.again)
        chosen = [each for each in chosen if each.name in survived]
    if not options.all and len(chosen) > options.sample:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    if options.list:
        for each in chosen:
            say(each.name)
        return 0
    suites = tuple(options.tests or SUITES[store])
    failures: list[Verdict] = []
    unrun: Counter[str] = Counter()

    def work(warm: WarmSession) -> None:
        valid = list(accepted(store, chosen, warm.url))
        say(f"{len(valid)} mutants of {store}, {len(chosen) - len(valid)} more that are no SQL")
        touches = read_touches(store, warm, options.record)
        tally = Tally(len(valid), options.verdicts)
        for each in valid:
            tests = ordered(each, touches, tally, options.budget)
            if not tests:
                unrun[each.statement] += 1
                continue
            warm.run(each, tests, tally.add)
        warm.finish()
        table(tally, unrun)
        failures.extend(each for each in tally.survivors if not is_argued(each.mutant))
        slow = sum(each.is_slow for each in tally.verdicts)
        say(
            f"\n{len(tally.verdicts)} mutants in {time.monotonic() - tally.begun:.0f} s: "
            f"{len(tally.verdicts) - len(tally.survivors)} killed ({slow} by time), "
            f"{len(tally.survivors) - len(failures)} argued, {len(failures)} survived, {sum(unrun.values())} not run"
        )

    status = work_with(suites, store, options.children, work)
    return exit_code(status, failures, stale, unrun)


def exit_code(
    status: int, failures: Sequence[Verdict], stale: Collection[str], unrun: Mapping[str, int]
) -> int:
    """Say whether every mutant was noticed or argued for; one whose statement no test executes was neither."""
    return int(bool(status or failures or stale or unrun))


def _survivors(path: Path) -> set[str]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["mutant"] for row in rows if row["killer"] is None}


def _append(path: Path, verdict: Verdict) -> None:
    row = {"mutant": verdict.mutant.name, "killer": verdict.killer, "tests": verdict.tests}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
