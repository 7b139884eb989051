"""What a worker runs: `holdfast worker invoicing.worker:jobs`."""

from invoicing import billing, dunning, emails, pdf, reminders, revenue, taxes
from invoicing.jobs import jobs

__all__ = ["billing", "dunning", "emails", "jobs", "pdf", "reminders", "revenue", "taxes"]
