"""What a worker runs: `holdfast worker tenders.worker:jobs`."""

from tenders import archiving, dispatch, ingest, receipts, sending
from tenders.jobs import jobs

__all__ = ["archiving", "dispatch", "ingest", "jobs", "receipts", "sending"]
