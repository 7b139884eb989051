"""The pure core: what jobs, leases, retries and schedules mean; no I/O, clock or randomness."""
