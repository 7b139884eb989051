"""What Celery's documentation says, page by page, as small programs that run on both sides."""
