"""Under which terms a worker claims."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, Job, Retry
from holdfast.worker.options import TypePolicies, WorkerOptions


@pytest.mark.parametrize(
    ("retry", "backoff_ms"),
    [
        (Retry(), (1_000, 60_000)),
        (Retry(base="1m", cap="1h"), (1_000, 60_000)),
        (Retry(base="50ms", cap="2s"), (50, 2_000)),
    ],
)
def test_a_job_whose_worker_died_waits_a_second_or_as_little_as_its_own_policy_says(
    retry: Retry, backoff_ms: tuple[int, int]
) -> None:
    app = Holdfast("sqlite:///:memory:")

    @app.job("mail", retry=retry)
    def mail(job: Job[str]) -> None: ...

    terms = TypePolicies({"mail": app.registry.get("mail")}, WorkerOptions())
    lease = terms.lease_class("mail")
    assert (lease.backoff_base_ms, lease.backoff_cap_ms) == backoff_ms
