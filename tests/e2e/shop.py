"""What the recovery test's workers handle: a payment that waits until its gate, a named pipe, is opened."""

import os
from pathlib import Path

from holdfast import Holdfast, Job

GATE_VARIABLE = "E2E_GATE"

app = Holdfast()


@app.job("order.charge", lease="3s")
def charge(job: Job[dict[str, int]]) -> str:
    """Charge once somebody writes to the gate."""
    return Path(os.environ[GATE_VARIABLE]).read_text()
