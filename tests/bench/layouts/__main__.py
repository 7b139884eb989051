"""Measures every layout and prints the table of `docs/adr/0001-table-layout.md`.

python -m tests.bench.layouts [--jobs 40000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from tests.bench.limit_loop import LONG_AGO, NIL, ONLY_BY_INDEX, uuid7
from tests.bench.machine import cpu_seconds, describe_machine
from tests.bench.payload import INPUT_TEXT, OUTPUT_TEXT
from tests.bench.server import BenchServer

LAYOUTS = sorted(Path(__file__).parent.glob("*.sql"))
BATCH = 200
HELD = 5000


@dataclass(frozen=True, slots=True)
class Row:
    """What one run of a layout took."""

    rate: float
    server_us: float
    start_wal: float
    drain_wal: float
    renew_ms: float
    renew_wal: float


def statements(path: Path) -> dict[str, bytes]:
    """Read the statements of a layout by name."""
    parts = path.read_text().split("-- name: ")[1:]
    return {name: text.encode() for name, _, text in (part.partition("\n") for part in parts)}


class Layout:
    """One layout in a database of its own."""

    def __init__(self, server: BenchServer, url: str, path: Path) -> None:
        self._server = server
        self._sql = statements(path)
        self._connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=1, options=ONLY_BY_INDEX
        )
        self._connection.execute(self._sql["tables"])

    def run(self, jobs: int) -> Row:
        """Start, renew what a busy worker holds, and drain."""
        pid = self._connection.info.backend_pid
        empty = self._server.wal_bytes()
        self._start(jobs)
        started = self._server.wal_bytes()
        renew_ms, renew_wal = self._renew()
        before, server, begun = self._server.wal_bytes(), cpu_seconds(pid), time.perf_counter()
        done = self._drain()
        seconds, spent = time.perf_counter() - begun, cpu_seconds(pid) - server
        drained = self._server.wal_bytes()
        self._connection.close()
        return Row(
            done / seconds,
            spent / done * 1e6,
            (started - empty) / jobs,
            (drained - before) / done,
            renew_ms,
            renew_wal,
        )

    def _start(self, jobs: int) -> None:
        for _ in range(jobs // 1000):
            given = {"ids": [uuid7() for _ in range(1000)], "inputs": [INPUT_TEXT] * 1000}
            self._connection.execute(self._sql["start"], given)

    def _renew(self) -> tuple[float, float]:
        """Claim what one worker may hold and renew it; it stays in flight at the head of the queue."""
        held: dict[UUID, list[UUID]] = {}
        self._mark = (LONG_AGO, NIL)
        while sum(map(len, held.values())) < HELD:
            token = uuid7()
            held[token] = [row[1] for row in self._claim(token)]
        given = {"ids": [id for ids in held.values() for id in ids], "tokens": list(held)}
        self._connection.execute(self._sql["renew"], given)
        before, begun = self._server.wal_bytes(), time.perf_counter()
        self._connection.execute(self._sql["renew"], given)
        return (time.perf_counter() - begun) * 1000, self._server.wal_bytes() - before

    def _drain(self) -> int:
        done = 0
        while rows := self._claim(token := uuid7()):
            ids = [row[1] for row in rows]
            given = {"ids": ids, "outputs": [OUTPUT_TEXT] * len(ids), "token": token}
            done += self._connection.execute(self._sql["complete"], given).rowcount
        return done

    def _claim(self, token: UUID) -> list[tuple[Any, ...]]:
        given = {"token": token, "at": self._mark[0], "id": self._mark[1], "limit": BATCH}
        rows = self._connection.execute(self._sql["claim"], given, binary=True).fetchall()
        if rows:
            self._mark = max(row[:2] for row in rows)
        return rows


def main() -> None:
    """Measure all layouts in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    rows: dict[str, list[Row]] = {path.stem: [] for path in LAYOUTS}
    with BenchServer.wheel() as server:
        print(describe_machine(), server.settings())
        for _ in range(chosen.rounds):
            for path in LAYOUTS:
                with server.database() as url:
                    rows[path.stem].append(Layout(server, url, path).run(chosen.jobs))
    print("| layout | drain/s | server µs | WAL start + drain | renew 5 000 held: ms | WAL bytes |")
    print("|---|---|---|---|---|---|")
    for name, runs in rows.items():

        def median(field: str, runs: list[Row] = runs) -> float:
            return float(statistics.median(getattr(each, field) for each in runs))

        print(
            f"| {name.replace('_', ' ')} | {median('rate') / 1000:.1f} k | {median('server_us'):.1f}"
            f" | {median('start_wal'):.0f} + {median('drain_wal'):.0f}"
            f" | {median('renew_ms'):.1f} | {median('renew_wal'):.0f} |"
        )


if __name__ == "__main__":
    main()
