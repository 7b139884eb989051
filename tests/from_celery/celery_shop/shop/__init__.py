"""A small shop on Celery, as a stranger would have it."""
