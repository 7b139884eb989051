"""Relays: readers of the event log that append what they read to a broker's stream, each event once."""
