"""Loggers of tasks, under the name that Celery has them."""

import logging


def get_task_logger(name: str) -> logging.Logger:
    """Return the logger of this name; the worker adds the job to every line."""
    return logging.getLogger(name)
