"""Tests of the stores themselves; what both must keep is in `tests.conformance`."""
