"""What a worker runs: `holdfast worker tenders.worker:jobs`."""

from tenders import dispatch, ingest, receipts
from tenders.jobs import jobs

__all__ = ["dispatch", "ingest", "jobs", "receipts"]
