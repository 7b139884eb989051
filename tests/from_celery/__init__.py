"""Celery projects on Holdfast."""
