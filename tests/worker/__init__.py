"""The worker, on both stores."""
