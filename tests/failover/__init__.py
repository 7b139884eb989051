"""Failovers of a real Patroni cluster on hosts of a test's own; `make failover` runs them as root."""
