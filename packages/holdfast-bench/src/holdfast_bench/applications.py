"""What the reference applications do a second, each run as its README says, in processes of its own.

Invoices are counted only if none is missing or doubled; tenders are matched as ingest does it, one transaction each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from holdfast_bench.measurement import Bench, Result, make_result

END_OF_LOG = 2000


def measure_invoices(bench: Bench) -> list[Result]:
    """Measure from the first request to the last e-mail, PDFs attached."""

    words = ("apps.invoicing.local", "--headless", "--exit")
    told = _run(bench, *words, invoices=bench.scale.invoices)
    return [make_result("invoices", "invoices/s", [bench.scale.invoices / float(told["seconds"])])]


def measure_matching(bench: Bench) -> list[Result]:
    """Match tenders to ten thousand devices, and see that memory stays where it was."""
    told = _run(bench, "tenders", "bench", tenders=bench.scale.tenders, devices=bench.scale.devices)
    rates = {"pairs_per_s": told["tenders"] * told["devices"] / told["seconds"]}
    return [
        make_result(
            "matching",
            "MiB growth",
            [told["peak_mib"] - told["idle_mib"]],
            beside=rates | {name: float(value) for name, value in told.items()},
            floor=64,
            goal=16,
        )
    ]


def _run(bench: Bench, module: str, *words: str, **options: int) -> dict[str, Any]:
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    with (
        bench.server.database(migrated=False) as url,
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
    ):
        done = subprocess.run(
            [sys.executable, "-m", module, *words, "-o", "json", "--url", url, *given],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"{module} exited with {done.returncode}:\n{_read_output(done, folder)}"
            )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _read_output(done: subprocess.CompletedProcess[str], folder: str) -> str:
    logs = [each.read_text(errors="replace") for each in Path(folder).glob("*-demo/log")]
    return "".join(logs)[-END_OF_LOG:] + done.stderr
