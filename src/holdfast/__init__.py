"""Durable jobs, outbox events and scheduled cycles on the database you already have."""

__version__ = "0.1.0"
