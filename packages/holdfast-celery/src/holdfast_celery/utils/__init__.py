"""What projects import from `celery.utils`."""
