"""What a worker runs: `holdfast worker invoicing.worker:jobs`."""

from invoicing import billing, emails, pdf, reminders, taxes
from invoicing.jobs import jobs

__all__ = ["billing", "emails", "jobs", "pdf", "reminders", "taxes"]
