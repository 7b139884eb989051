"""How many invoices a second the reference application renders and mails: its API, two workers, a mail server.

The application is run as `make invoicing` runs it, in processes, and is counted only if nothing is missing or doubled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.bench.measurement import Bench, Contest, Result

LOG = Path("invoicing-demo", "log")
END_OF_LOG = 2000


def measure_invoices(bench: Bench) -> list[Result]:
    """Measure from the first request to the last e-mail, PDFs attached."""
    contest = Contest(bench.scale.side_rounds, {"ours": lambda: _rate(bench)})
    return [contest.result("invoices", "invoices/s", limit=None)]


def _rate(bench: Bench) -> float:
    command = [sys.executable, "-m", "invoicing.local", "--headless", "--exit", "-o", "json"]
    with (
        bench.server.database(migrated=False) as url,
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
    ):
        done = subprocess.run(
            [*command, "--url", url, "--invoices", str(bench.scale.invoices)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"invoicing exited with {done.returncode}:\n{_said(done, folder)}")
    return bench.scale.invoices / float(json.loads(done.stdout)["seconds"])


def _said(done: subprocess.CompletedProcess[str], folder: str) -> str:
    log = Path(folder) / LOG
    return (log.read_text(errors="replace") if log.exists() else "")[-END_OF_LOG:] + done.stderr
