"""Payloads that are encrypted in the database."""
