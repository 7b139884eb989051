"""The worker: claims jobs under leases, runs their handlers, records what came of them. Async only."""
