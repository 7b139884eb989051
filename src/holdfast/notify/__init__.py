"""Hints between processes: somebody may have work for you. Losing one costs latency, never a job."""
