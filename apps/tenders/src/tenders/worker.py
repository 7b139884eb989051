"""What a worker runs: `holdfast worker tenders.worker:jobs`."""

from tenders.jobs import jobs

__all__ = ["jobs"]
