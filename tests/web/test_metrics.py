"""Metrics of one process: made at the first event, whoever tells it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from holdfast.core.events import event
from holdfast.web.probes import ProcessMetrics

THREADS = 4
ROUNDS = 50


@pytest.fixture
def short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("short_turns")
def test_threads_that_tell_the_first_events_together_count_in_one_registry() -> None:
    for _ in range(ROUNDS):
        metrics, start = ProcessMetrics(), threading.Barrier(THREADS)

        def tell(metrics: ProcessMetrics = metrics, start: threading.Barrier = start) -> None:
            start.wait()
            metrics.observe(event("lease_lost"))

        threads = [threading.Thread(target=tell) for _ in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        shown, _ = metrics.render(None)
        assert f"holdfast_lease_lost_total {THREADS}.0" in shown.decode()
