"""Hints over Redis and NATS, against real servers."""
