"""What a worker runs: `holdfast worker invoicing.worker:jobs`."""

from invoicing import taxes
from invoicing.jobs import jobs

__all__ = ["jobs", "taxes"]
