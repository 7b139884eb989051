"""Hints between processes over Redis or NATS."""
