"""What a worker runs: `holdfast worker tenders.worker:jobs`."""

from tenders import dispatch, receipts
from tenders.jobs import jobs

__all__ = ["dispatch", "jobs", "receipts"]
