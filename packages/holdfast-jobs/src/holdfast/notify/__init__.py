"""Hints between processes: there may be work to do. Losing one costs latency, never a job."""
